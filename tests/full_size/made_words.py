"""What a scrape and a review of the made world would leave, at any share of the true size.

As many landmarks have an "instance of" as Ramzi et al. (2024) report: 129.1 of 203 thousand in
train, 68.1 of 101 thousand in the index, with 5.7 thousand different values. How often a value is
used falls with its rank (Zipf). Every value is decided for one of the 78 supercategories.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import declared_table
from hgld.config import CleanOptions, SourceOptions, StageContext
from hgld.hierarchy.clean import clean_values

__all__ = ["make_words"]

SCRAPED = {"train": 129_100 / 203_094, "index": 68_100 / 101_297}
VALUES = 5_700
SEVERAL = 0.02  # of the landmarks have a second statement
TAXONOMY = Path("labels/gldv2/taxonomy.csv")


def make_words(landmarks: pd.DataFrame, share: float, seed: int = 0) -> tuple[pd.DataFrame, ...]:
    """instance_of, misses, landmark_values, clean_dropped, taxonomy, decisions, overrides."""
    random = np.random.default_rng(seed)
    drawn = random.random(len(landmarks)) < landmarks["split"].map(SCRAPED).to_numpy()
    values = max(78, round(VALUES * share))
    instance_of = _statements(landmarks[drawn], values, random)
    misses = landmarks.loc[~drawn, ["split", "landmark_id"]].assign(reason="no_item", detail="")
    images = declared_table("images").empty()
    context = StageContext("2026-11-21", Path(), SourceOptions(), Path())
    _, landmark_values, dropped = clean_values(
        landmarks, images, instance_of, options=CleanOptions(), context=context
    )
    taxonomy = declared_table("taxonomy").read(TAXONOMY)
    decisions = _decide(values, taxonomy)
    overrides = declared_table("overrides").empty()
    return instance_of, misses, landmark_values, dropped, taxonomy, decisions, overrides


def _statements(landmarks: pd.DataFrame, values: int, random: np.random.Generator) -> pd.DataFrame:
    """One statement a landmark, two of a few."""
    twice = landmarks[random.random(len(landmarks)) < SEVERAL]
    rows = pd.concat([landmarks.assign(order=0), twice.assign(order=1)], ignore_index=True)
    weights = 1 / np.arange(1, values + 1)
    number = random.choice(values, len(rows), p=weights / weights.sum())
    made = rows[["split", "landmark_id", "order"]].assign(
        item_id="Q" + (rows["landmark_id"] + 10_000_000).astype(str), revision=1,
        class_id=np.char.add("Q", (number + 1_000).astype(str)),
        instance_of=np.char.add("value ", number.astype(str)), rank="normal", qualifiers="",
    )  # fmt: skip
    return declared_table("instance_of").check(made, Path("instance_of"))


def _decide(values: int, taxonomy: pd.DataFrame) -> pd.DataFrame:
    row = taxonomy.iloc[np.arange(values) % len(taxonomy)]
    made = pd.DataFrame(
        {
            "key": np.char.add("Q", (np.arange(values) + 1_000).astype(str)), "key_type": "qid",
            "decision": "keep", "supercategory": row["supercategory"].to_numpy(),
            "kind": row["kind"].to_numpy(), "who": "made", "when": "2026-11-21", "why": "",
            "supersedes": "", "evidence": "", "entry": "", "undoes": "",
        }
    )  # fmt: skip
    return declared_table("decisions").check(made, Path("decisions"))
