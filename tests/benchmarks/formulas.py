"""The slow ways to the same numbers, written from the formulas: what kernels are compared with."""

import torch
from torch import Tensor

TAU, RHO, DELTA = 0.01, 100.0, 0.05
END = 1.0 / (1.0 + 2.718281828459045 ** (-DELTA / TAU)) + 0.5


def steps(t: Tensor, lower: Tensor, own: Tensor) -> Tensor:
    """H where the level is not lower, H-minus (Eq. 4) where it is, 0 for a pair with itself.

    Branch by branch, each a masked read and a masked write: how the formula reads as tensor code.
    """
    found = torch.zeros_like(t)
    branches = (
        (~lower & ~own, lambda x: (x >= 0).to(x.dtype)),
        (lower & (t < 0), lambda x: torch.sigmoid(x / TAU)),
        (lower & (t >= 0) & (t <= DELTA), lambda x: torch.sigmoid(x / TAU) + 0.5),
        (lower & (t > DELTA), lambda x: RHO * (x - DELTA) + END),
    )
    for mask, branch in branches:
        found[mask] = branch(t[mask])
    return found


def one_row(scores: Tensor, levels: Tensor, rel: Tensor, targets: Tensor) -> Tensor:
    """Sup-H-AP of one query from its (targets, N) pairs; targets may hold negatives."""
    t = scores[None, :] - scores[targets][:, None]
    own = torch.arange(len(scores))[None, :] == targets[:, None]
    lower = levels[None, :] < levels[targets][:, None]
    rank = 1.0 + steps(t, lower, own).sum(1)
    shared = torch.minimum(rel[None, :], rel[targets][:, None])
    above = torch.zeros_like(t)
    above[~own] = (t[~own] >= 0).to(t.dtype)
    h_rank = rel[targets] + (shared * above).sum(1)
    return 1.0 - (h_rank / rank * (rel[targets] > 0)).sum() / rel.sum()


def rows(scores: Tensor, levels: Tensor, rel: Tensor) -> tuple[Tensor, Tensor]:
    """Each query against all N x N pairs, negatives too, autograd a row."""
    return _each(scores, levels, rel, everything=True)


def loop(scores: Tensor, levels: Tensor, rel: Tensor) -> tuple[Tensor, Tensor]:
    """Each query's positives against all, P x N pairs, autograd a row."""
    return _each(scores, levels, rel, everything=False)


def _each(scores: Tensor, levels: Tensor, rel: Tensor, everything: bool) -> tuple[Tensor, Tensor]:
    losses, gradients = [], []
    for s, x, r in zip(scores, levels, rel, strict=True):
        leaf = s.detach().requires_grad_()
        targets = torch.arange(len(s)) if everything else (x > 0).nonzero()[:, 0]
        loss = one_row(leaf, x, r, targets)
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    return torch.stack(losses), torch.stack(gradients)


def metric_stack(scores: Tensor, query_labels: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """One function a metric over ranked labels: topk of all, int64 labels gathered, ranks by
    argsort of argsort, cumulative sums of levels, a python loop over queries for @R."""
    n, num_levels = scores.shape[1], labels.shape[1]
    order = scores.topk(n, 1).indices
    same = labels[order] == query_labels[:, None, :]  # (Q, N, L)
    ranked = same.long().cumprod(2).sum(2)
    ranks = scores.argsort(1, descending=True).argsort(1).gather(1, order) + 1
    found = {
        "H-AP": _h_ap(ranked, ranks, num_levels),
        "NDCG": _ndcg(ranked, ranks),
        "ASI": _asi(ranked, ranks, num_levels),
    }
    for at in range(1, num_levels + 1):
        hits = ranked >= at
        found[f"AP:{at}"] = (hits.cumsum(1) / ranks * hits).sum(1) / hits.sum(1)
        at_r = []
        for row, where in zip(hits, ranks, strict=True):
            total = int(row.sum())
            top = row[:total]
            at_r.append((top.cumsum(0) / where[:total] * top).sum() / total)
        found[f"mAP@R:{at}"] = torch.stack(at_r)
        for k in (1, 10, 100, 1000):
            found[f"R@{k}:{at}"] = hits[:, :k].any(1).double()
    return found


def _h_ap(ranked: Tensor, ranks: Tensor, num_levels: int) -> Tensor:
    every = range(1, num_levels + 1)
    table = torch.stack(
        [v / num_levels / (ranked == v).sum(1).clamp(min=1) for v in (0, *every)], 1
    )
    rel = table.gather(1, ranked)
    until = [(ranked == v).long().cumsum(1) for v in every]
    shared = [torch.minimum(rel, table[:, v : v + 1]) for v in every]
    h_rank = torch.stack([a * b for a, b in zip(shared, until, strict=True)]).sum(0)
    return (h_rank / ranks).sum(1) / rel.sum(1)


def _ndcg(ranked: Tensor, ranks: Tensor) -> Tensor:
    logs = (ranks + 1.0).log2()
    best = ranked.sort(1, descending=True).values
    return ((2.0**ranked - 1.0) / logs).sum(1) / ((2.0**best - 1.0) / logs).sum(1)


def _asi(ranked: Tensor, ranks: Tensor, num_levels: int) -> Tensor:
    best = ranked.sort(1, descending=True).values
    shared = torch.stack([
        torch.minimum((ranked == v).long().cumsum(1), (best == v).long().cumsum(1))
        for v in range(1, num_levels + 1)
    ]).sum(0)  # fmt: skip
    positives = (ranked > 0).sum(1)
    return (shared / ranks * (ranks <= positives[:, None])).sum(1) / positives


def metrics_by_cumsum(scores: Tensor, levels: Tensor, num_levels: int) -> dict[str, Tensor]:
    """The same, with every sum shared between the metrics: as lean as torch code gets."""
    n = scores.shape[1]
    ranked = levels.long().gather(1, scores.topk(n, 1).indices)
    places = torch.arange(1, n + 1)
    counts = torch.stack([(ranked == v).sum(1) for v in range(num_levels + 1)], 1)
    until = [(ranked == v).long().cumsum(1) for v in range(num_levels + 1)]
    share = torch.arange(num_levels + 1) / num_levels
    table = share / counts.clamp(min=1)
    rel = table.gather(1, ranked)
    h_rank = sum(
        torch.minimum(rel, table[:, v : v + 1]) * until[v] for v in range(1, num_levels + 1)
    )
    gain = 2.0**ranked - 1.0
    logs = (places + 1.0).log2()
    best = ranked.sort(1, descending=True).values
    found = {
        "H-AP": (h_rank / places).sum(1) / rel.sum(1),
        "NDCG": (gain / logs).sum(1) / ((2.0**best - 1.0) / logs).sum(1),
    }
    shared = sum(
        torch.minimum(until[v], (best == v).long().cumsum(1)) for v in range(1, num_levels + 1)
    )
    positives = (ranked > 0).sum(1)
    overlap = shared / places * (places <= positives[:, None])
    found["ASI"] = overlap.sum(1) / positives
    for at in range(1, num_levels + 1):
        hits = ranked >= at
        precision = hits.cumsum(1) / places * hits
        total = hits.sum(1)
        found[f"AP:{at}"] = precision.sum(1) / total
        found[f"mAP@R:{at}"] = (precision * (places <= total[:, None])).sum(1) / total
        for k in (1, 10, 100, 1000):
            found[f"R@{k}:{at}"] = hits[:, :k].any(1).double()
    return found
