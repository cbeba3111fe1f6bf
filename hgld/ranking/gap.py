"""How much the mean of a metric over batches flatters the metric of the whole (section III-C).

``metrics.decomposability_gap`` measures it; here are the papers' upper bounds (Eq. 26 and 27) for
AP, for batches of one query that each rank perfectly.
"""

from collections.abc import Sequence

from hgld.errors import ShapeError

__all__ = ["gap_bound", "gap_bound_with_calibration"]


def gap_bound(positives: Sequence[int], negatives: Sequence[int]) -> float:
    """Upper bound of the gap (Eq. 26): the batches one after the other, the first on top.

    It holds where the metric is 1 in each batch and all batches have the same number of positives
    and the same number of negatives.

    Args:
        positives: of the query in each batch.
        negatives: in each batch.

    Example:
        >>> round(gap_bound([1, 1], [1, 1]), 6)
        0.166667
    """
    _check(positives, negatives)
    total, above, below = 0.0, 0, 0
    for here, wrong in zip(positives, negatives, strict=True):
        total += sum((j + above) / (j + above + below) for j in range(1, here + 1))
        above, below = above + here, below + wrong
    return 1.0 - total / above


def gap_bound_with_calibration(
    positives: Sequence[int],
    negatives: Sequence[int],
    good_positives: Sequence[int],
    bad_negatives: Sequence[int],
) -> float:
    """Upper bound of the gap (Eq. 27) where some scores keep to the calibration.

    It is 0 where all do. It is not always below Eq. 26: where most negatives stray and some
    positives are below alpha, those are counted behind the good ones of their batch once more, and
    Eq. 26 is the better bound.

    Args:
        positives: of the query in each batch.
        negatives: in each batch.
        good_positives: G+, positives of each batch above alpha.
        bad_negatives: E-, negatives of each batch above beta.

    Example:
        >>> gap_bound_with_calibration([2, 2], [2, 2], [2, 2], [0, 0])
        0.0
    """
    _check(positives, negatives)
    total, above, below, good, bad = 0.0, 0, 0, 0, 0
    for here, wrong, kept, strayed in zip(
        positives, negatives, good_positives, bad_negatives, strict=True
    ):
        total += sum((j + good) / (j + good + bad) for j in range(1, kept + 1))
        late = kept + above
        total += sum((j + late) / (j + late + below) for j in range(1, here - kept + 1))
        above, below, good, bad = above + here, below + wrong, good + kept, bad + strayed
    return 1.0 - total / above


def _check(positives: Sequence[int], negatives: Sequence[int]) -> None:
    if len(positives) != len(negatives) or not sum(positives):
        raise ShapeError(
            f"{len(positives)} batches of positives, {len(negatives)} of negatives; "
            "expected as many of each, and a positive"
        )
