"""Peak memory of a piece of work in a process of its own, beyond what it was given."""

import argparse

import torch

from hgld.ranking import losses
from hgld.ranking.levels import shared_levels
from tests.benchmarks.cases import embeddings_of, labels_of
from tests.benchmarks.meters import from_process, reset_peak, status_kb


def above_inputs(work) -> float:
    """MB that the work needs beyond what is there before it."""
    reset_peak()
    before = status_kb("VmHWM")
    work()
    return (status_kb("VmHWM") - before) / 1024


def loss_of_scores(size: int) -> float:
    """Sup-H-AP forward and backward of a (B, B) table of scores."""
    scores_work(256)()  # loads the kernels
    return above_inputs(scores_work(size))


def scores_work(size: int):
    """The work on scores and levels that are there."""
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels)
    leaf, levels = (vectors @ vectors.T).requires_grad_(), shared_levels(labels, labels)
    return lambda: torch.autograd.grad(losses.sup_h_ap(leaf, levels, 2).mean(), leaf)


def streaming(size: int) -> float:
    """Sup-H-AP forward and backward from embeddings, some rows at a time."""
    module = losses.SupHAP(2, chunk=256)
    module(embeddings_of(labels_of(512, "2")).requires_grad_(), labels_of(512, "2")).backward()
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels).requires_grad_()
    return above_inputs(lambda: module(vectors, labels).backward())


WORKS = {"scores": loss_of_scores, "streaming": streaming}


def in_a_process(name: str, size: int) -> float:
    """Peak of a piece of work, from a fresh process."""
    return float(from_process("-m", "tests.benchmarks.memory", name, size))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("size", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(WORKS[given.work](given.size))
