"""Peak memory of a piece of work in a process of its own, beyond what it was given."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import torch

from hgld.ranking import losses
from hgld.ranking.levels import shared_levels
from tests.benchmarks.cases import embeddings_of, labels_of


def peak_mb() -> float:
    """Highest resident size since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def above_inputs(work) -> float:
    """MB that the work needs beyond what is there before it."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_mb()
    work()
    return peak_mb() - before


def loss_of_scores(size: int) -> float:
    """Sup-H-AP forward and backward of a (B, B) table of scores."""
    small = embeddings_of(labels_of(256, "2"))
    run_scores(small @ small.T, labels_of(256, "2"))  # loads the kernels
    labels = labels_of(size, "2")
    vectors = embeddings_of(labels)
    scores = vectors @ vectors.T
    levels = shared_levels(labels, labels)
    leaf = scores.requires_grad_()

    def work() -> None:
        torch.autograd.grad(losses.sup_h_ap(leaf, levels, 2).mean(), leaf)

    return above_inputs(work)


def run_scores(scores, labels) -> None:
    levels = shared_levels(labels, labels)
    leaf = scores.requires_grad_()
    torch.autograd.grad(losses.sup_h_ap(leaf, levels, 2).mean(), leaf)


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
    command = [sys.executable, "-m", "tests.benchmarks.memory", name, str(size)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(found.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("size", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(WORKS[given.work](given.size))
