"""How many landmarks are left at each step of cleaning, beside the paper's numbers.

The paper's (Ramzi et al. 2024, section VI) are rounded as it gives them; of what it removed it
says only "approximately 0.25 %" for several values and irrelevant ones together.
"""

import pandas as pd

from hgld.artifacts import ID_SPACES

__all__ = ["describe_funnel"]

BY_LANDMARK = ["split", "landmark_id"]
PAPER = {  # step -> train, index
    "landmarks": ("203k", "101k"),
    "scraped": ("129.1k", "68.1k"),
    "several values": ("}", "}"),
    "irrelevant only": ("} 0.25 %", "} 0.25 %"),
    "kept": ("128.8k", "67.9k"),
}
PAPERS_VALUES = "5.7k"
POLICIES = {
    "first-best": "of several values the first of the best rank counts",
    "single-only": "landmarks with several values are dropped",
    "all": "of several values of the best rank all count",
}


def describe_funnel(
    steps: dict[str, pd.DataFrame], distinct_values: int, policy: str, beside_the_paper: bool
) -> str:
    """One line a step, one column an id space, and the number of distinct values.

    Args:
        steps: the steps of ``PAPER``, each a table with the rows of its landmarks.
        distinct_values: over both id spaces.
        policy: which statements count.
        beside_the_paper: show the paper's numbers as well.
    """
    paper = [f"{'paper':>10}"] if beside_the_paper else [""]
    lines = [" " * 16 + "".join(f"{space:>10}" + paper[0] for space in ID_SPACES)]
    for step, table in steps.items():
        own = table[BY_LANDMARK].drop_duplicates()["split"].value_counts()
        cells = [
            f"{own.get(space, 0):>10,}" + (f"{theirs:>10}" if beside_the_paper else "")
            for space, theirs in zip(ID_SPACES, PAPER[step], strict=True)
        ]
        lines.append(f"{step:<16}" + "".join(cells))
    total = f"{PAPERS_VALUES:>10}  (both)" if beside_the_paper else ""
    lines.append(f"{'distinct values':<16}{distinct_values:>10,}{total}")
    return "\n".join([*lines, f"{policy}: {POLICIES[policy]}"])
