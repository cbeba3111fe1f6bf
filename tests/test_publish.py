import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from hgld.artifacts import ARTIFACTS, Table
from hgld.config import PublishOptions
from hgld.errors import InvalidData
from hgld.publish import write_release
from tests.made_run import PLACES, MadeRun, context, make_run

PUBLISHED = ["landmark_id", "category", "supercategory", "hierarchical_label"]
FILES = {
    "LICENSE-labels.md",
    "README.md",
    "SHA256SUMS",
    "attribution.csv",
    "decisions.csv",
    "index_label_to_hierarchical.csv",
    "lineage.csv",
    "taxonomy.csv",
    "train_label_to_hierarchical.csv",
}


def labels(places: dict[int, tuple[str, str]]) -> pd.DataFrame:
    rows = [
        (i, f"http://commons.wikimedia.org/wiki/Category:A,_{i}", f"old {name}", name, kind)
        for i, (kind, name) in places.items()
    ]
    return pd.DataFrame(rows, columns=[*PUBLISHED, "natural_or_human_made"])


def table(name: str, *rows: tuple[Any, ...]) -> pd.DataFrame:
    artifact = ARTIFACTS[name]
    assert isinstance(artifact, Table)
    return pd.DataFrame(rows, columns=list(artifact.columns))


def decision(key: str, word: str, group: str = "", kind: str = "", who: str = "ann") -> Any:
    return (key, "label", word, group, kind, who, "2026-01-01", "", "", "")


def tables() -> dict[str, pd.DataFrame]:
    step = ("", "", 0, "", "old")
    return {
        "train_labels": labels(PLACES),
        "index_labels": labels({7: ("natural", "lake")}),
        "lineage": table(
            "lineage",
            ("train", 1, *step, "decision", "ann", "2026-01-01", "church", "human-made"),
            ("train", 2, *step, "override", "bob", "2026-01-01", "church", "human-made"),
        ),
        "taxonomy": table(
            "taxonomy",
            ("bridge", "human-made", "Crosses water | road."),
            ("church", "human-made", "A house of prayer."),
            ("lake", "natural", "Standing water."),
            ("windmill", "human-made", "No landmark has it."),
        ),
        "decisions": table(
            "decisions",
            decision("old lake", "drop"),
            decision("old church", "keep", "church", "human-made"),
            decision("old lake", "keep", "lake", "natural", who="bob | co"),
            decision("thing", "drop"),
        ),
        "label_dropped": table(
            "label_dropped",
            ("train", 8, "no_item", ""),
            ("train", 9, "no_item", ""),
            ("index", 9, "undecided", "thing"),
        ),
        "export_dropped": table("export_dropped", ("train", "ff", "undecodable", "truncated")),
    }


@pytest.fixture
def run(tmp_path: Path) -> MadeRun:
    return make_run(tmp_path / "work")


def release(
    run: MadeRun,
    kind: str = "gldv2",
    name: str = "Made Landmarks",
    agreement: dict[str, Any] | None = None,
    **changes: pd.DataFrame,
) -> Path:
    given = {**tables(), **changes}
    out = run.folder / "release"
    write_release(
        given["train_labels"],
        given["index_labels"],
        given["lineage"],
        given["taxonomy"],
        given["decisions"],
        run.shards,
        run.evaluation,
        given["label_dropped"],
        given["export_dropped"],
        agreement or {},
        options=PublishOptions(name=name, version="2.1.0"),
        context=context(run.folder, kind),
        out=out,
    )
    return out


def card(out: Path) -> tuple[dict[str, Any], str]:
    _, header, body = (out / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(header), body


def test_the_release_holds_labels_and_notices_but_no_photo(run: MadeRun) -> None:
    assert {path.name for path in release(run).iterdir()} == FILES


@pytest.mark.parametrize(
    "name", ["train_labels", "index_labels", "lineage", "taxonomy", "decisions"]
)
def test_tables_are_those_of_the_work_folder_byte_for_byte(run: MadeRun, name: str) -> None:
    artifact = ARTIFACTS[name]
    assert isinstance(artifact, Table)
    work = run.folder / artifact.file
    artifact.write(tables()[name], work)
    read_again = {name: artifact.read(work)}
    assert (release(run, **read_again) / artifact.file).read_bytes() == work.read_bytes()


def test_the_checksums_hold_and_leave_out_no_file(run: MadeRun) -> None:
    out = release(run)
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True
    )
    assert checked.returncode == 0
    named = {line.split(":")[0] for line in checked.stdout.splitlines()}
    assert named == FILES - {"SHA256SUMS"}


def test_the_same_run_gives_the_same_bytes_in_any_folder(tmp_path: Path) -> None:
    first, second = (release(make_run(tmp_path / name)) for name in ("here", "there"))
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_header_of_the_card_describes_the_files(run: MadeRun) -> None:
    out = release(run)
    header, _ = card(out)
    assert header["license"] == "cc-by-4.0" and header["pretty_name"] == "Made Landmarks"
    assert header["size_categories"] == ["n<1K"]
    sizes = {info["config_name"]: info for info in header["dataset_info"]}
    for config in header["configs"]:
        info = sizes[config["config_name"]]
        for data, split in zip(config["data_files"], info["splits"], strict=True):
            with (out / data["path"]).open(encoding="utf-8", newline="") as file:
                columns, *rows = csv.reader(file)
            assert [feature["name"] for feature in info["features"]] == columns
            assert (split["name"], split["num_examples"]) == (data["split"], len(rows))
            assert split["num_bytes"] == (out / data["path"]).stat().st_size


def test_a_name_that_yaml_would_misread_survives(run: MadeRun) -> None:
    name = 'No: "é" # 1'
    assert card(release(run, name=name))[0]["pretty_name"] == name


def test_the_card_counts_each_supercategory(run: MadeRun) -> None:
    # Landmarks 1, 2 are churches, 3 a bridge, 4, 5 lakes, with two photos each; index 7 a lake.
    _, body = card(release(run))
    assert "| church | human-made | 2 | 0 | 4 |" in body
    assert "| bridge | human-made | 1 | 0 | 2 |" in body
    assert "| lake | natural | 2 | 1 | 4 |" in body
    assert "windmill" not in body
    assert "| labelled landmarks | 5 | 1 |" in body
    assert "| of these human-made | 3 | 0 |" in body
    assert "| supercategories | 3 | 1 |" in body


def test_landmarks_without_a_label_are_not_counted_as_labelled(run: MadeRun) -> None:
    unlabelled = labels({**PLACES, 6: ("", "")})
    assert "| labelled landmarks | 5 | 1 |" in card(release(run, train_labels=unlabelled))[1]


def test_the_card_counts_the_decisions_in_force_and_names_who_made_them(run: MadeRun) -> None:
    _, body = card(release(run))
    assert "1 drop, 2 keep.\n   Decided by: ann; bob \\| co." in body
    assert "but for 1 that were decided one by one" in body


def test_the_card_tells_scraped_values_from_a_table_at_hand(run: MadeRun) -> None:
    lineage = tables()["lineage"].assign(item_id="Q42", revision=7)
    assert "brought in from a table" in card(release(run))[1]
    assert "Wikidata item of each landmark" in card(release(run, lineage=lineage))[1]


def test_the_card_says_what_was_left_out_and_why(run: MadeRun) -> None:
    _, body = card(release(run))
    assert "| landmarks without a label | train | no_item | 2 |" in body
    assert "| landmarks without a label | index | undecided | 1 |" in body
    assert "| images not exported | train | undecodable | 1 |" in body


def test_the_card_says_how_far_the_annotators_agree(run: MadeRun) -> None:
    of_all = {"by": "values", "agreement": 0.75, "ac1": 0.6}
    named = {"of": "supercategory", "kappa": 0.5, "low": 0.4, "high": 0.6, "note": ""}
    none = {"of": "kind", "kappa": None, "low": None, "high": None, "note": "not defined"}
    agreement = {
        "annotators": ["ann", "bob"],
        "values": 1003,
        "measures": [{**of_all, **named}, {**of_all, **none}],
    }
    out = release(run, agreement=agreement)
    body = " ".join(card(out)[1].split())
    assert "decided 1,003 values independently (ann and bob)" in body
    assert "supercategory, by values: agreement 75.0 %, Cohen's kappa 0.500 (95 %" in body
    assert "kind, by values: agreement 75.0 %, not defined" in body
    assert json.loads((out / "agreement.json").read_text()) == agreement
    assert "agreement.json" in (out / "SHA256SUMS").read_text()


def test_without_a_measured_agreement_the_card_says_nothing_of_it(run: MadeRun) -> None:
    assert "kappa" not in card(release(run))[1]


def test_nothing_left_out_is_said_too(run: MadeRun) -> None:
    none = {name: tables()[name][:0] for name in ("label_dropped", "export_dropped")}
    assert "Nothing: every landmark has a label" in card(release(run, **none))[1]


def test_the_card_shows_the_evaluation(run: MadeRun) -> None:
    _, body = card(release(run))
    lines = body.splitlines()
    start = lines.index("| model | H-AP | AP:kind | AP:supercategory | AP:landmark |")
    assert lines[start + 2 : start + 4] == [
        "| good | 75.0 | 90.0 | 50.0 | 25.0 |",
        "| plain | 50.0 | 90.0 | 62.5 | – |",
    ]


def test_the_card_says_where_the_shards_are(run: MadeRun) -> None:
    _, body = card(release(run))
    assert "The 10 exported images are **not in this folder**" in body
    assert "`../shards`" in body and str(run.folder) not in body


def test_attribution_is_that_of_the_shards(run: MadeRun) -> None:
    source = (run.shards / "attribution.csv").read_bytes()
    assert (release(run) / "attribution.csv").read_bytes() == source


def test_without_attribution_there_is_no_release(run: MadeRun) -> None:
    (run.shards / "attribution.csv").unlink()
    with pytest.raises(InvalidData, match=r"attribution\.csv: does not exist.*export stage"):
        release(run)
    assert not (run.folder / "release").exists()


def test_a_made_world_is_not_passed_off_as_a_real_one(run: MadeRun) -> None:
    out = release(run, kind="toy")
    header, body = card(out)
    assert "source_datasets" not in header
    assert "**made** landmark world" in body and "Weyand" not in body
    notice = (out / "LICENSE-labels.md").read_text("utf-8")
    assert "made world" in notice and "Google" not in notice


def test_gldv2_and_wikidata_are_credited(run: MadeRun) -> None:
    out = release(run)
    notice = (out / "LICENSE-labels.md").read_text("utf-8")
    for text in (card(out)[1], notice):
        assert "Google" in text and "CC BY 4.0" in text and "Wikidata" in text and "CC0" in text
