"""The equations once more, as slow float64 loops, for the tests to hold the code against."""

import math

import numpy as np
import torch
from torch import Tensor


def h_minus(t, tau=0.01, rho=100.0, delta=0.05, start=0.5, offset=None):
    """Eq. 4 with H-minus(0) = start + 0.5."""
    sigmoid = 1.0 / (1.0 + math.exp(-t / tau)) if t > -700 * tau else 0.0
    if t < 0:
        return sigmoid
    if t <= delta:
        return sigmoid + start
    end = 1.0 / (1.0 + math.exp(-delta / tau)) + start if offset is None else offset
    return rho * (t - delta) + end


def h_minus_slope(t, tau=0.01, rho=100.0, delta=0.05, **_):
    if t > delta:
        return rho
    sigmoid = 1.0 / (1.0 + math.exp(-t / tau)) if t > -700 * tau else 0.0
    return sigmoid * (1.0 - sigmoid) / tau


def rel_of(levels, num_levels, alpha=1.0):
    """Eq. 20 of one row."""
    levels = np.asarray(levels)
    return np.array(
        [(x / num_levels) ** alpha / np.sum(levels == x) if x > 0 else 0.0 for x in levels]
    )


def sup_loss(s, levels, rel, kind, **step):
    """One query: loss and gradient of a Sup-loss, pair by pair. rel is gain for NDCG."""
    n = len(s)
    present = [j for j in range(n) if levels[j] >= 0]
    positives = [k for k in present if levels[k] > 0]
    gradient = np.zeros(n)
    if not positives:
        return 0.0, gradient
    loss, weights = 1.0, []
    ideal = sum(g / math.log2(2 + i) for i, g in enumerate(sorted(rel[positives])[::-1]))
    for k in positives:
        rank, h_rank = 0.0, 0.0
        for j in present:
            t = s[j] - s[k]
            h_rank += min(rel[j], rel[k]) * (t >= 0)
            rank += (t >= 0) if levels[j] >= levels[k] else h_minus(t, **step)
        if kind == "ratio":
            total = rel[positives].sum()
            loss -= h_rank / rank / total
            weights.append(h_rank / rank**2 / total)
        elif kind == "dcg":
            loss -= rel[k] / math.log2(1 + rank) / ideal
            weights.append(rel[k] / ideal / math.log(2) / (1 + rank) / math.log2(1 + rank) ** 2)
        else:
            ks, temperature = kind
            weight = 0.0
            for cut in ks:
                share = 1.0 / (1.0 + math.exp(min(700.0, (rank - cut) / temperature)))
                loss -= share / min(cut, len(positives)) / len(ks)
                weight += share * (1 - share) / temperature / min(cut, len(positives)) / len(ks)
            weights.append(weight)
    for k, weight in zip(positives, weights, strict=True):
        for j in present:
            if levels[j] < levels[k]:
                slope = weight * h_minus_slope(s[j] - s[k], **step)
                gradient[j] += slope
                gradient[k] -= slope
    return loss, gradient


def ranking_of(scores, levels):
    """Levels in ranked order: by score, then the less relevant first; -1 left out."""
    pairs = [(-s, x) for s, x in zip(scores, levels, strict=True) if x >= 0]
    return [x for _, x in sorted(pairs)]


def h_ap_of(ranked, rel_by_level):
    """Eq. 19 of a ranked list, rank by rank."""
    rels = [rel_by_level[x] if x > 0 else 0.0 for x in ranked]
    total = sum(rels)
    value = 0.0
    for k, rel in enumerate(rels):
        if rel > 0:
            value += sum(min(rel, other) for other in rels[: k + 1]) / (k + 1)
    return value / total if total else math.nan


def ap_of(ranked, at, cut=None, limit=None):
    hits = [x >= at for x in ranked]
    total = sum(hits)
    if not total:
        return math.nan
    stop = len(hits) if cut is None else cut if cut != "R" else total
    value = sum(sum(hits[: i + 1]) / (i + 1) for i in range(min(stop, len(hits))) if hits[i])
    return value / (total if limit is None else min(limit, total))


def ndcg_of(ranked):
    gains = [2.0**x - 1.0 for x in ranked]
    ideal = sum(g / math.log2(i + 2) for i, g in enumerate(sorted(gains)[::-1]))
    return sum(g / math.log2(i + 2) for i, g in enumerate(gains)) / ideal if ideal else math.nan


def asi_of(ranked):
    ideal = sorted(ranked)[::-1]
    depth = sum(x > 0 for x in ranked)
    if not depth:
        return math.nan
    total = 0.0
    for n in range(1, depth + 1):
        top, best = ranked[:n], ideal[:n]
        total += sum(min(top.count(x), best.count(x)) for x in set(best) if x > 0) / n
    return total / depth


def of_paths(ranked, num_levels, cut):
    """AHD, hP, hR and hF of label paths, label by label."""
    shared = [[level < x for level in range(num_levels)] for x in ranked]
    first, every = sum(map(sum, shared[:cut])), sum(map(sum, shared))
    precision, recall = first / (cut * num_levels), first / every
    return {
        f"ahd_at_{cut}": sum(1 - sum(s) / num_levels for s in shared[:cut]) / len(shared[:cut]),
        f"hp_at_{cut}": precision,
        f"hr_at_{cut}": recall,
        f"hf_at_{cut}": 2 * precision * recall / (precision + recall) if first else 0.0,
    }


def of_path_sets(ranked, query, cut):
    """hP, hR and hF of the label paths of a ranked gallery, by sets of labels."""

    def nodes(path):
        return {tuple(path[: depth + 1]) for depth in range(len(path))}

    of_query = nodes(query)
    first, every = (sum(len(nodes(p) & of_query) for p in part) for part in (ranked[:cut], ranked))
    precision = first / sum(len(nodes(path)) for path in ranked[:cut])
    recall = first / every
    return precision, recall, 2 * precision * recall / (precision + recall) if first else 0.0


def hi_mul_con_of_authors(cosines, paths, temperature, constraint):
    """Loss of each level in the algorithm of Zhang et al.'s code, finest first.

    After each level the first image of each of its classes remains for the coarser ones.
    """
    remaining, found = list(range(len(paths))), []
    for level in range(len(paths[0]), 0, -1):
        means = []
        for i in remaining:
            others = [j for j in remaining if j != i]
            total = sum(math.exp(cosines[i][j] / temperature) for j in others)
            own = [j for j in others if paths[j][:level] == paths[i][:level]]
            shares = [math.exp(cosines[i][j] / temperature) / total for j in own]
            means.append(-sum(map(math.log, shares)) / len(shares))
        mean = sum(means) / len(means)
        found.append(max([mean, *found]) if constraint else mean)
        first = {tuple(paths[i][:level]): i for i in reversed(remaining)}
        remaining = sorted(first.values())
    return found


def hops_of(ranked, cut=None):
    """HOPS of a ranked list of levels, rank by rank."""
    order = sorted(set(ranked), reverse=True)
    found = [order.index(x) for x in ranked]
    ideal, last = sorted(found), len(order) - 1
    apart = worst = 0.0
    for r, step in list(enumerate(ideal))[:cut]:
        place, size = r - ideal.index(step), ideal.count(step)
        end = 1.0 if step == 0 else 0.0 if step == last else 0.5 ** (step + 1)
        weight = 0.5**step + (end - 0.5**step) * place / size
        apart += weight * abs(step - found[r])
        worst += weight * abs(step - ideal[-1 - r])
    return max(0.0, 1.0 - apart / worst) if last and any(ranked) else math.nan


def votes_of(paths, query):
    """HC and HCA of the label paths of the first images of one query."""
    path = []
    for depth in range(1, len(query) + 1):
        votes = [tuple(other[:depth]) for other in paths]
        path.append(max(votes, key=lambda one, v=votes: (v.count(one), -v.index(one))))
    consistent = all(path[-1][: len(one)] == one for one in path)
    return float(consistent), float(path[-1] == tuple(query) and consistent)


def random_pairs(seed, queries=4, gallery=14, num_levels=3, absent=0.1, ties=False):
    """Scores (float64) and levels (int8) of random queries; ties from coarse scores."""
    make = torch.Generator().manual_seed(seed)
    scores = torch.rand(queries, gallery, generator=make, dtype=torch.float64) * 1.6 - 0.8
    if ties:
        scores = (scores * 5).round() / 5
    levels = torch.randint(0, num_levels + 1, (queries, gallery), generator=make)
    drop = torch.rand(queries, gallery, generator=make) < absent
    return scores, levels.masked_fill(drop, -1).to(torch.int8)


def rows(scores: Tensor, levels: Tensor):
    """Row by row as numpy."""
    return zip(scores.double().numpy(), levels.numpy(), strict=True)
