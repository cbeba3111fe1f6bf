"""One command, one gate: the whole road on a made world of 1 % of GLDv2's size, twice.

Once undisturbed, once killed at 20 random moments and started again each time. Both end in the
same bytes, but for hidden files and the seconds and times that lock.json notes.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest

from hgld.artifacts import declared_table
from hgld.config import FetchOptions
from tests.full_size.made_world import sizes_of
from tests.rehearsal.road import LEGS, Road, Spent, draw_kills
from tests.rehearsal.road_scene import SHARE, Servers, read_rows, serve_all

KILLS = 20
ENDED_S = 20.0  # after which no process of a killed run may be there


@pytest.mark.rehearsal
def test_a_road_with_twenty_kills_ends_as_an_undisturbed_one(template: Path, folder: Path) -> None:
    with serve_all(template, folder / "world") as servers:
        undisturbed = Road(folder / "undisturbed", servers)
        spent, made, metrics = [], [], []
        for leg in LEGS:
            undisturbed.prepare(leg)
            spent += undisturbed.go(leg)
            made.append(undisturbed.outputs())
            metrics.append(means(undisturbed.work / "report.json"))
        require_truth(undisturbed, servers)
        require_both_protocols(*metrics[2:])
        killed, hits, start = Road(folder / "killed", servers), Counter[str](), time.perf_counter()
        kills = draw_kills(spent, KILLS, random.Random(0))
        for leg, wanted in zip(LEGS, made, strict=True):
            killed.prepare(leg)
            hits.update(map(killed.kill, [kill for kill in kills if kill.leg is leg]))
            killed.go(leg)
            assert different(killed.outputs(), wanted) == []
    seconds = time.perf_counter() - start
    print(*table(spent, hits), f"killed and started again: {seconds:.0f} s", sep="\n")
    tars = [path for path, _ in servers.files.asked if path.endswith(".tar")]
    assert len(tars) <= 2 * 620 + hits["fetch"] * FetchOptions().parallel  # no more is loaded again
    assert len(hits) >= 10  # not all: a stage may be faster than it was, then the next one is hit
    require_end_of(killed)


def means(report: Path) -> dict[str, dict[str, float]]:
    """Metrics of each model, where there is a report."""
    models = json.loads(report.read_text())["models"] if report.exists() else {}
    return {name: model["mean"] for name, model in models.items()}


def different(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Files that are not the same, or there only once."""
    return sorted(name for name in found | wanted if found.get(name) != wanted.get(name))


def require_truth(road: Road, servers: Servers) -> None:
    """As many photos as GLDv2 has at that size, the wiki's statements, the person's decisions."""
    sizes = sizes_of(SHARE)
    photos = read(road, "images")["split"].value_counts()
    assert photos["train"] == sizes.clean_images
    assert photos["index"] == sizes.index_images
    assert photos["test"] == sizes.public + sizes.private
    servers.truth.require(read(road, "instance_of"), read(road, "misses"))
    for split in ("train", "index"):
        rows = read_rows(road.work / f"{split}_label_to_hierarchical.csv")
        labels = {
            row["landmark_id"]: (row["hierarchical_label"], row["natural_or_human_made"])
            for row in rows
        }
        assert labels == servers.truth.labels(split)


def require_both_protocols(
    official: dict[str, dict[str, float]], paper: dict[str, dict[str, float]]
) -> None:
    """Both tell the paper's mAP@100, the same one; only the official one has that of all photos."""
    assert official.keys() == paper.keys() == {"pretrained", "happier"}
    for name, values in paper.items():
        shared = {metric: official[name][metric] for metric in values}
        assert shared == values
        assert 0 < official[name]["mAP@100 gldv2-official"] < 1


def require_end_of(road: Road) -> None:
    """No process of a killed run lives on, nothing of it is left, and nothing is to be done."""
    until = time.monotonic() + ENDED_S
    while (left := road.living()) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []
    assert [path for path in road.work.rglob("*") if path.name.endswith((".tmp", ".part"))] == []
    road.go(LEGS[-1])
    assert "All stages are fresh" in road.last_words()


def read(road: Road, name: str) -> pd.DataFrame:
    """A table that the road has led to."""
    artifact = declared_table(name)
    return artifact.read(road.work / artifact.file)


def table(spent: Sequence[Spent], hits: Counter[str]) -> Iterator[str]:
    """Seconds, kills and memory of each part, over all legs."""
    yield f"\n{'part':<10}{'seconds':>9}{'kills':>7}{'peak MB':>9}"
    for part in dict.fromkeys([*(one.part for one in spent), *hits]):
        of_part = [one for one in spent if one.part == part]
        seconds = sum(one.seconds for one in of_part)
        memory = max((one.memory_mb for one in of_part), default=0)
        yield f"{part:<10}{seconds:>9.1f}{hits[part]:>7}{memory:>9.0f}"
    yield f"{'all':<10}{sum(one.seconds for one in spent):>9.1f}{hits.total():>7}"
