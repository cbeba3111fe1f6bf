"""What has to be known of scores and levels before a loss, in one reading each, in Triton.

In torch these are a dozen small operations and three waits for the GPU, which cost as much as the
loss of a batch of a thousand.
"""

import triton
import triton.language as tl

__all__ = ["bound_rows", "count_images"]


@triton.jit
def bound_rows(scores, levels, found, width, BLOCK: tl.constexpr):
    """Least and greatest level of each row, and whether a score is nan or inf.

    Args:
        scores: (Q, N) floats.
        levels: (Q, N) integers.
        found: (Q, 3) int64, written: least, greatest, 1 where a score is no number.
        width: N.
        BLOCK: columns at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    low = tl.full([BLOCK], 127, tl.int64)
    high = tl.full([BLOCK], -1, tl.int64)
    wrong = tl.zeros([BLOCK], tl.int32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        level = tl.load(levels + row * width + at, mask=at < width, other=0).to(tl.int64)
        low = tl.minimum(low, tl.where(at < width, level, 127))
        high = tl.maximum(high, tl.where(at < width, level, -1))
        s = tl.load(scores + row * width + at, mask=at < width, other=0.0)
        wrong |= (tl.abs(s) < float("inf")).to(tl.int32) ^ 1
    tl.store(found + row * 3, tl.min(low, 0))
    tl.store(found + row * 3 + 1, tl.max(high, 0))
    tl.store(found + row * 3 + 2, tl.max(wrong, 0).to(tl.int64))


@triton.jit
def count_images(
    levels, counts, width, num_levels, STEPS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Images on each level of each row.

    Args:
        levels: (Q, N) integers; -1 is not in the gallery.
        counts: (Q, L + 1) int64, written, level 0 first.
        width: N.
        num_levels: L.
        STEPS: a power of two above L.
        BLOCK: columns at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    step = tl.arange(0, STEPS)
    count = tl.zeros([STEPS], tl.int32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        level = tl.load(levels + row * width + at, mask=at < width, other=-1).to(tl.int32)
        count += tl.sum((level[:, None] == step[None, :]).to(tl.int32), 0)
    here = counts + row * (num_levels + 1) + step
    tl.store(here, count.to(tl.int64), mask=step <= num_levels)
