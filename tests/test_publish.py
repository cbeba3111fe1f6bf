import csv
import json
import pickle
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
import yaml

from hgld.artifacts import BY_LANDMARK, declared_table
from hgld.config import PublishOptions, ScrapeOptions, SourceOptions, StageContext
from hgld.errors import InvalidData
from hgld.hierarchy.label_file import hierarchy_of
from hgld.publish import card as cards
from hgld.publish import (
    content,
    release_folder,
    release_published,
    release_reviewed,
    write_release,
)
from hgld.publish.content import Release
from hgld.shards.classes import number_classes
from hgld.storage import RemoteFolder
from tests.made_run import CC, PLACES, MadeRun, context, make_run

PUBLISHED = ["landmark_id", "category", "supercategory", "hierarchical_label"]
LABELS = {
    "LICENSE-labels.md",
    "README.md",
    "SHA256SUMS",
    "croissant.json",
    "decisions.csv",
    "figures/shares.png",
    "figures/sunburst.png",
    "figures/supercategories.png",
    "index_label_to_hierarchical.csv",
    "lineage.csv",
    "taxonomy.csv",
    "train_label_to_hierarchical.csv",
}
PHOTOS = {
    "removals.csv",
    "shards/README.md",
    "shards/attribution.csv",
    "shards/evaluation-000000.tar",
    "shards/index.parquet",
    "shards/manifest.json",
}


READS = (
    *("train_labels", "index_labels", "hierarchy"),
    *("label_dropped", "lineage", "taxonomy", "decisions"),
)


def labels(places: dict[int, tuple[str, str]]) -> pd.DataFrame:
    rows = [
        (i, f"http://commons.wikimedia.org/wiki/Category:A,_{i}", f"old {name}", name, kind)
        for i, (kind, name) in places.items()
    ]
    return pd.DataFrame(rows, columns=[*PUBLISHED, "natural_or_human_made"])


def hierarchy(places: dict[str, dict[int, tuple[str, str]]]) -> pd.DataFrame:
    rows = [(space, i, *names) for space, own in places.items() for i, names in own.items()]
    return hierarchy_of(pd.DataFrame(rows, columns=[*BY_LANDMARK, "kind", "supercategory"]))


def table(name: str, *rows: tuple[Any, ...]) -> pd.DataFrame:
    artifact = declared_table(name)
    return pd.DataFrame(rows, columns=list(artifact.columns))


def decision(key: str, word: str, group: str = "", kind: str = "", who: str = "ann") -> Any:
    when = supersedes = "2026-01-01"  # by hand: the row above of the same key
    return (key, "label", word, group, kind, who, when, "", supersedes, "", "", "")


def tables() -> dict[str, pd.DataFrame]:
    step = ("", "", 0, "", "old")
    return {
        "train_labels": labels(PLACES),
        "index_labels": labels({7: ("natural", "lake")}),
        "hierarchy": hierarchy({"train": PLACES, "index": {7: ("natural", "lake")}}),
        "lineage": table(
            "lineage",
            ("train", 1, *step, "decision", "ann", "2026-01-01", "church", "human-made", "0.667"),
            ("train", 2, *step, "override", "bob", "2026-01-01", "church", "human-made", ""),
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
        "removals": table("removals", ("beef", "a person on it asked")),
    }


_drawn: dict[bytes, bytes] = {}


@dataclass(frozen=True)
class Picture:
    """What ``png`` of a drawing returns."""

    content: bytes

    def png(self) -> bytes:
        return self.content


@pytest.fixture(autouse=True)
def pictures_of_equal_data_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests look at tables; to draw the pictures of a card takes most of the time."""

    def draw_new(draw: Callable[..., Any], *given: object) -> Picture:
        key = pickle.dumps((draw.__name__, given))
        if key not in _drawn:
            _drawn[key] = draw(*given).png()
        return Picture(_drawn[key])

    for name in ("draw_groups", "draw_sunburst", "draw_shares"):
        monkeypatch.setattr(cards, name, partial(draw_new, getattr(cards, name)))


@pytest.fixture
def run(tmp_path: Path) -> MadeRun:
    return make_run(tmp_path / "work")


def release(
    run: MadeRun,
    kind: str = "gldv2",
    agreement: dict[str, Any] | None = None,
    photos: bool = True,
    tables_too: dict[str, pd.DataFrame] | None = None,
    **options: Any,
) -> Path:
    """Release the made run, with its photos unless told otherwise."""
    given = {**tables(), **(tables_too or {})}
    out = run.folder / "release"
    held = (run.shards, run.evaluation, given["export_dropped"], given["removals"])
    write_release(
        *(given[name] for name in READS),
        agreement or {},
        *(held if photos else ()),
        options=PublishOptions(**{"name": "Made Landmarks", "version": "2.1.0", **options}),
        context=context(run.folder, kind),
        out=out,
    )
    return out


def release_classes(
    run: MadeRun,
    of: StageContext,
    *held: Any,
    images: pd.DataFrame | None = None,
    dropped: pd.DataFrame | None = None,
    removals: pd.DataFrame | None = None,
) -> Path:
    """Release the classes of the made run by name, as those of a folder."""
    release_folder(
        run.hierarchy,
        table("label_dropped") if dropped is None else dropped,
        images_of(run) if images is None else images,
        *held,
        options=PublishOptions(),
        context=of,
        out=run.folder / "release",
        removals=removals,
    )
    return run.folder / "release"


def release_decided(run: MadeRun, folder: Path, scrape: str, **linking: pd.DataFrame) -> Path:
    """Release the classes of the made run by name, with decisions about them."""
    given = tables()
    release_reviewed(
        run.hierarchy,
        table("label_dropped"),
        images_of(run),
        *(given[name] for name in ("lineage", "taxonomy", "decisions")),
        {},
        options=PublishOptions(),
        context=replace(context(folder, "folder"), scrape=ScrapeOptions(source=scrape)),
        out=run.folder / "release",
        **linking,
    )
    return run.folder / "release"


def card(out: Path) -> tuple[dict[str, Any], str]:
    _, header, body = (out / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(header), body


def files(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def test_labels_alone_need_no_shard_and_hold_no_photo(run: MadeRun) -> None:
    shutil.rmtree(run.shards)
    out = release(run, photos=False)
    assert files(out) == LABELS
    assert "Labels only: the photos are not part of this release." in card(out)[1]


def test_a_release_with_shards_holds_them_and_who_made_each_photo(run: MadeRun) -> None:
    out = release(run)
    assert files(out) == LABELS | PHOTOS
    for name in ("evaluation-000000.tar", "attribution.csv"):
        assert (out / "shards" / name).read_bytes() == (run.shards / name).read_bytes()


def test_a_readme_in_the_folder_of_shards_stays_as_it_is(run: MadeRun) -> None:
    (run.shards / "README.md").write_text("mine")
    assert "mine" not in (release(run) / "shards" / "README.md").read_text()
    assert (run.shards / "README.md").read_text() == "mine"


def test_the_removal_list_names_images_but_not_why(run: MadeRun) -> None:
    out = release(run)
    assert (out / "removals.csv").read_text() == "image_id\nbeef\n"
    assert "those that were (1 so far)" in card(out)[1]


def move_shards(run: MadeRun, there: Path) -> None:
    """Move the tars to where ``export.out`` would have put them."""
    there.mkdir()
    for tar in run.shards.glob("*.tar"):
        tar.rename(there / tar.name)
    shutil.copy(run.shards / "manifest.json", there)
    stored = RemoteFolder(there.as_uri()).stat("manifest.json")
    assert stored is not None
    note = {"url": there.as_uri(), "manifest": stored.stamp}
    (run.shards / ".location.json").write_text(json.dumps(note), encoding="utf-8")


@pytest.mark.slow
def test_a_release_takes_shards_from_the_url_they_were_exported_to(
    run: MadeRun, tmp_path: Path
) -> None:
    expected = {name: (release(run) / name).read_bytes() for name in files(release(run))}
    move_shards(run, tmp_path / "there")
    out = release(run)
    assert {name: (out / name).read_bytes() for name in files(out)} == expected


def test_shards_at_a_url_that_are_missing_or_changed_are_not_released(
    run: MadeRun, tmp_path: Path
) -> None:
    move_shards(run, tmp_path / "there")
    tar = tmp_path / "there" / "evaluation-000000.tar"
    tar.write_bytes(tar.read_bytes()[::-1])
    with pytest.raises(InvalidData, match=rf"^{tar}: .* was changed; .*run export again$"):
        release(run)
    tar.unlink()
    with pytest.raises(InvalidData, match=rf"^{tar}: the shard is missing; .*run export again$"):
        release(run)
    assert not (run.folder / "release").exists()


def test_shards_that_hold_a_removed_image_are_not_released(run: MadeRun) -> None:
    removals = table("removals", (f"{3:016x}", "asked"))
    with pytest.raises(InvalidData, match=r"holds image 0000000000000003.*run the export stage"):
        release(run, tables_too={"removals": removals})
    assert not (run.folder / "release").exists()


@pytest.mark.parametrize(
    "name", ["train_labels", "index_labels", "lineage", "taxonomy", "decisions"]
)
def test_tables_are_those_of_the_work_folder_byte_for_byte(run: MadeRun, name: str) -> None:
    artifact = declared_table(name)
    work = run.folder / artifact.file
    artifact.write(tables()[name], work)
    read_again = {name: artifact.read(work)}
    assert (release(run, tables_too=read_again) / artifact.file).read_bytes() == work.read_bytes()


def test_the_checksums_hold_and_leave_out_no_file(run: MadeRun) -> None:
    out = release(run)
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True
    )
    assert checked.returncode == 0
    named = {line.split(":")[0] for line in checked.stdout.splitlines()}
    assert named == (LABELS | PHOTOS) - {"SHA256SUMS"}


def test_the_same_run_gives_the_same_bytes_in_any_folder(tmp_path: Path) -> None:
    first = release(make_run(tmp_path / "here"))
    _drawn.clear()
    second = release(make_run(tmp_path / "there"))
    for name in LABELS | PHOTOS:
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


def test_the_languages_of_the_card_are_those_of_the_names(tmp_path: Path) -> None:
    named = replace(context(tmp_path), languages=("ru", "pt-br", "pt"))
    out = release_classes(make_run(tmp_path / "work"), named)
    assert card(out)[0]["language"] == ["ru", "pt"]
    document = json.loads((out / "croissant.json").read_text("utf-8"))
    assert document["inLanguage"] == ["ru", "pt-br", "pt"]


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
    assert (
        "| labelled landmarks | 5 | 1 |"
        in card(release(run, tables_too={"train_labels": unlabelled}))[1]
    )


def test_an_edit_of_the_hierarchy_is_in_all_tables_of_a_release(run: MadeRun) -> None:
    bridge = "human-made", "bridge"
    edited = {"train": {**PLACES, 1: bridge}, "index": {7: ("human-made", "harbour")}}
    out = release(run, tables_too={"hierarchy": hierarchy(edited)})
    train = pd.read_csv(out / "train_label_to_hierarchical.csv", index_col="landmark_id")
    index = pd.read_csv(out / "index_label_to_hierarchical.csv")
    assert PLACES[1] != bridge and train.loc[1, "hierarchical_label"] == "bridge"
    assert index[["hierarchical_label", "natural_or_human_made"]].values.tolist() == [
        ["harbour", "human-made"]
    ]
    lineage = pd.read_csv(out / "lineage.csv", keep_default_na=False)
    columns = ["landmark_id", "supercategory", "kind", "decided_by", "who", "when", "agreement"]
    assert lineage[columns].values.tolist() == [
        [1, "bridge", "human-made", "edit", "", "", ""],
        [2, "church", "human-made", "override", "bob", "2026-01-01", ""],
    ]
    body = card(out)[1]
    assert "| harbour | human-made | 0 | 1 |" in body and "but for 2 that were decided one" in body


def test_the_card_counts_the_decisions_in_force_and_names_who_made_them(run: MadeRun) -> None:
    _, body = card(release(run))
    assert "1 drop, 2 keep.\n   Decided by: ann; bob \\| co." in body
    assert "but for 1 that were decided one by one" in body
    unsigned = tables()["decisions"].assign(who=["", "ann", "", "ann"])
    assert "Decided by: ann.\n" in card(release(run, tables_too={"decisions": unsigned}))[1]


def test_the_card_tells_scraped_values_from_a_table_at_hand(run: MadeRun) -> None:
    lineage = tables()["lineage"].assign(item_id="Q42", revision=7)
    assert "brought in from a table" in card(release(run))[1]
    assert (
        "Wikidata item of each landmark" in card(release(run, tables_too={"lineage": lineage}))[1]
    )


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
    assert "who decided and when, and `agreement`: of the values that either annotator" in body
    assert json.loads((out / "agreement.json").read_text()) == agreement
    assert "agreement.json" in (out / "SHA256SUMS").read_text()


def test_without_a_measured_agreement_the_card_says_nothing_of_it(run: MadeRun) -> None:
    assert "kappa" not in card(release(run))[1]


def test_nothing_left_out_is_said_too(run: MadeRun) -> None:
    none = {name: tables()[name][:0] for name in ("label_dropped", "export_dropped")}
    body = card(release(run, tables_too=none))[1]
    assert "Nothing: every landmark has a label" in body
    assert "that were collected; what was excluded before that is not counted here." in body


def test_the_card_shows_the_evaluation(run: MadeRun) -> None:
    _, body = card(release(run))
    lines = body.splitlines()
    start = lines.index("| model | H-AP | AP:kind | AP:supercategory | AP:landmark |")
    assert lines[start + 2 : start + 4] == [
        "| good | 75.0 | 90.0 | 50.0 | 25.0 |",
        "| plain | 50.0 | 90.0 | 62.5 | – |",
    ]


def test_the_card_shows_a_run_of_several_seeds_in_one_row(run: MadeRun) -> None:
    mean = {"H-AP": 0.625, "AP:kind": 0.9, "AP:supercategory": 0.5625, "AP:landmark": None}
    spread = {**mean, "H-AP": 0.17678, "AP:kind": 0.0}
    run.evaluation["runs"] = {"net": {"models": ["good", "plain"], "mean": mean, "std": spread}}
    _, body = card(release(run))
    assert "| net | 62.5 ± 17.7 | 90.0 ± 0.0 | 56.2 ± 56.2 | – |" in body


def test_the_shards_have_a_card_that_declares_them_as_a_webdataset(run: MadeRun) -> None:
    header, body = card(release(run) / "shards")
    (config,) = header["configs"]
    assert config["data_files"] == [{"split": "evaluation", "path": "evaluation-*.tar"}]
    assert header["license_name"] == "that-of-each-image" and "10 images in 1 tar" in body


def test_the_card_says_how_many_photos_there_are_under_which_licence(run: MadeRun) -> None:
    _, body = card(release(run))
    assert "The images are in `shards/` (10 images, tar files: 1" in body
    assert f"| {CC} | 10 |" in body and str(run.folder) not in body


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


def test_labels_have_the_licence_that_is_asked_for(run: MadeRun) -> None:
    out = release(run, photos=False, license="cc0-1.0")
    assert card(out)[0]["license"] == "cc0-1.0"
    assert "available under cc0-1.0." in (out / "LICENSE-labels.md").read_text("utf-8")


def test_published_labels_are_released_without_decisions(run: MadeRun) -> None:
    given, out = tables(), run.folder / "release"
    release_published(
        *(given[name] for name in READS[:4]),
        options=PublishOptions(),
        context=context(run.folder),
        out=out,
    )
    assert files(out) == LABELS - {"decisions.csv", "lineage.csv", "taxonomy.csv"}
    _, body = card(out)
    assert (
        "nothing was scraped or decided here" in body and "| church | human-made | 2 | 0 |" in body
    )
    assert "H-GLDv2 (Ramzi" in (out / "LICENSE-labels.md").read_text("utf-8")


def test_the_hierarchy_of_a_folder_is_released_with_a_column_a_level(tmp_path: Path) -> None:
    out = release_classes(make_run(tmp_path / "work"), context(tmp_path))
    first, second, *_ = (out / "labels.csv").read_text().splitlines()
    assert first == "split,class_id,kind,supercategory,landmark"
    assert second == "evaluation,1,human-made,church,train:1"
    header, body = card(out)
    assert header["license"] == "unknown" and "No licence of the labels is named" in body
    assert "| church | human-made | 2 |" in body and "Wikidata" not in body


LEVELS = ("department", "brand | maker", "item <b>")


def release_products(run: MadeRun, folder: Path, *held: Any, **options: Any) -> Path:
    """Release four items: 1 is in two splits, 2 is held out; a fifth has no label."""
    paths = [
        {"department": "=SUM(1)", "brand | maker": "<script>alert(1)</script>", LEVELS[2]: f"i{i}"}
        for i in (1, 2, 3)
    ] + [{"department": "-5", "brand | maker": "@home", LEVELS[2]: "i4"}]
    hierarchy = pd.DataFrame(
        {
            "split": ["train"] * 4 + ["index"],
            "landmark_id": [1, 2, 3, 4, 1],
            "path": list(map(json.dumps, [*paths, paths[0]])),
        }
    )
    splits = ["train", "test", "evaluation", "train", "train", "evaluation"]
    images = pd.DataFrame(
        {
            "image_id": [f"{i}.jpg" for i in range(6)],
            "split": splits,
            "landmark_id": [1, 1, 2, 3, 4, 5],
            "path": [f"{i}.jpg" for i in range(6)],
        }
    )
    dropped = table("label_dropped", ("train", 5, "empty label", "row 7"))
    out = run.folder / "release"
    release_folder(
        hierarchy,
        dropped,
        images,
        *held,
        options=PublishOptions(**{"name": "Products", **options}),
        context=context(folder, "folder"),
        out=out,
    )
    return out


def test_the_card_of_a_reviewed_folder_says_that_its_values_are_of_a_table(
    run: MadeRun, tmp_path: Path
) -> None:
    facts, body = card(release_decided(run, tmp_path, "table"))
    assert "brought in from a table" in body
    assert facts["annotations_creators"] == ["expert-generated"]  # people decided
    assert "`landmark_id` is its number" in body  # labels.csv calls it class_id
    assert "Of the classes that were collected" in body  # images.csv holds all images


@pytest.mark.parametrize(
    ("labels_csv", "origin"),
    [("labels.csv", "a CSV"), ("", "the names of the folders of images")],
    ids=["csv", "folders"],
)
def test_a_release_says_what_the_hierarchy_was_read_from(
    run: MadeRun, tmp_path: Path, labels_csv: str, origin: str
) -> None:
    source = SourceOptions(kind="folder", labels_csv=labels_csv)
    out = release_classes(run, replace(context(tmp_path), source=source))
    assert f"The hierarchy was read from {origin}. " in card(out)[1]
    document = json.loads((out / "croissant.json").read_text("utf-8"))
    assert document["prov:wasGeneratedBy"]["prov:label"] == f"reading of {origin}"


def row_of(name: str, /, **cells: object) -> pd.DataFrame:
    """A row of a table; the other cells are empty or 0."""
    columns = declared_table(name).columns
    empty = {column: "" if kind == "text" else 0 for column, kind in columns.items()}
    return pd.DataFrame([{**empty, **cells}])


def test_how_classes_got_their_items_is_released_with_a_reviewed_folder(
    run: MadeRun, tmp_path: Path
) -> None:
    linking = {
        "linked": row_of("linked", split="train", landmark_id=1, item_id="Q1", by="name (en)"),
        "links": row_of("links", name="nobody", qid="none", who="bob"),
        "ancestry": row_of("ancestry", item_id="Q1", property="P279", above="Q2"),
    }
    out = release_decided(run, tmp_path, "items", **linking)
    header, body = card(out)
    names = {one["config_name"] for one in header["configs"]}
    assert names >= {"linked", "links", "ancestry"}
    assert "1 class got a Wikidata item: 1 by name (en);" in body and "`links.csv`" in body
    assert "nobody,none" in (out / "links.csv").read_text("utf-8")
    document = json.loads((out / "croissant.json").read_text("utf-8"))
    assert document["prov:wasDerivedFrom"] == [{"@id": "https://www.wikidata.org/"}]
    assert {"linked", "links", "ancestry"} <= {one["name"] for one in document["recordSet"]}


def test_tables_of_links_without_rows_are_left_out(run: MadeRun, tmp_path: Path) -> None:
    given = tables()
    write_release(
        *(given[name] for name in READS),
        {},
        options=PublishOptions(),
        context=context(run.folder),
        out=run.folder / "release",
        linked=row_of("linked", split="train", landmark_id=1, item_id="Q1", by="qid"),
        links=table("links"),
        ancestry=table("ancestry"),
    )
    assert {"linked.csv"} == files(run.folder / "release") & {
        "linked.csv", "links.csv", "ancestry.csv"
    }  # fmt: skip


def test_a_release_of_a_folder_says_in_which_splits_each_class_is(
    run: MadeRun, tmp_path: Path
) -> None:
    out = release_products(run, tmp_path)
    with (out / "labels.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["split", "class_id", *LEVELS]
    assert [row[:2] for row in rows] == [
        ["train; test", "1"],
        ["evaluation", "2"],
        ["train", "3"],
        ["train", "4"],
    ]


def test_a_release_of_a_folder_lists_each_image_with_its_class_and_split(
    run: MadeRun, tmp_path: Path
) -> None:
    assert (release_products(run, tmp_path) / "images.csv").read_text().splitlines() == [
        "path,split,class_id,item <b>",
        "0.jpg,train,1,i1",
        "1.jpg,test,1,i1",
        "2.jpg,evaluation,2,i2",
        "3.jpg,train,3,i3",
        "4.jpg,train,4,i4",
    ]


@pytest.mark.parametrize(("road", "total"), [("folder", 1), ("published", 2)])
def test_a_class_of_two_splits_is_one_class_of_its_group_but_ids_of_two_spaces_are_two(
    tmp_path: Path, road: Literal["folder", "published"], total: int
) -> None:
    classes = pd.DataFrame(
        {"split": ["train", "index"], "landmark_id": 7, "kind": "", "group": "a"}
    )
    nothing = table("label_dropped")
    given = (PublishOptions(), context(tmp_path), road, [], classes, nothing, {}, None)
    (group,) = Release(*given).groups
    assert group.all_landmarks == total
    assert group.landmarks == {"train": 1, "index": 1}


def test_a_number_that_is_another_class_in_the_gallery_is_not_taken_for_it(run: MadeRun) -> None:
    # Of the classes with the number 1, that of the training data alone has a label.
    images = images_of(run).assign(split=["train", "test"] * 5)
    dropped = table("label_dropped", ("index", 1, "undecided", ""))
    out = release_classes(run, context(run.folder, "folder"), images=images, dropped=dropped)
    rows = pd.read_csv(out / "images.csv")
    assert len(rows) == 5 and set(rows["split"]) == {"train"}
    labels = pd.read_csv(out / "labels.csv")
    assert set(labels["split"]) == {"train"}
    lines = card(out)[1].splitlines()
    left_out = [line for line in lines if line.startswith("| classes without a label")]
    assert left_out == ["| classes without a label | test | undecided | 1 |"]


def test_a_release_of_labels_alone_names_no_image_that_is_to_go(run: MadeRun) -> None:
    images = images_of(run)
    removals = table("removals", (images["image_id"][0], "she asked"))
    out = release_classes(run, context(run.folder, "folder"), images=images, removals=removals)
    rows = pd.read_csv(out / "images.csv", dtype=str)
    assert sorted(rows["path"]) == sorted(images["path"][1:])
    assert not [path for path in out.rglob("*.*") if b"she asked" in path.read_bytes()]


def test_a_release_with_photos_counts_the_classes_that_have_any(run: MadeRun) -> None:
    images = images_of(run)
    run.index = run.index[run.index["landmark_id"] != 3].reset_index(drop=True)
    run.write_index()
    held = (run.shards, run.evaluation, table("export_dropped"), table("removals"))
    out = release_classes(run, context(run.folder, "folder"), *held, images=images)
    labels = pd.read_csv(out / "labels.csv", keep_default_na=False)
    assert labels["split"].tolist() == ["evaluation", "evaluation", "", "evaluation", "evaluation"]
    body = card(out)[1]
    assert "| supercategory | 2 |" in body and "| landmark | 4 |" in body and "bridge" not in body


def test_the_card_of_a_folder_speaks_of_its_levels_and_of_no_landmarks(
    run: MadeRun, tmp_path: Path
) -> None:
    out = release_products(run, tmp_path)
    _, body = card(out)
    lines = body.splitlines()
    start = lines.index("| | train | evaluation | test |")
    assert lines[start + 2 : start + 5] == [
        "| department | 2 | 1 | 1 |",
        "| brand \\| maker | 2 | 1 | 1 |",
        "| item &lt;b&gt; | 3 | 1 | 1 |",
    ]
    assert "| classes without a label | evaluation | empty label | 1 |" in lines
    words = {word for file in ("README.md", "LICENSE-labels.md", "croissant.json")
             for word in (out / file).read_text("utf-8").lower().split()}  # fmt: skip
    assert not [word for word in words if "landmark" in word]


def test_names_are_text_in_the_card_and_no_formulas_in_the_tables(
    run: MadeRun, tmp_path: Path
) -> None:
    out = release_products(run, tmp_path, name="<i>Mine</i>")
    body = card(out)[1] + (out / "LICENSE-labels.md").read_text("utf-8")
    assert "<script>" not in body and "<i>" not in body and "&lt;script&gt;" in body
    with (out / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["department"] for row in rows] == ["'=SUM(1)"] * 3 + ["-5"]
    assert rows[3]["brand | maker"] == "'@home"


def test_released_decisions_hold_no_formula(run: MadeRun) -> None:
    evil = table("decisions", decision("=1+1", "drop"), decision("'=1", "drop", who="+A1"))
    text = (release(run, tables_too={"decisions": evil}) / "decisions.csv").read_text()
    assert [line.split(",")[0] for line in text.splitlines()[1:]] == ["'=1+1", "''=1"]
    assert ",'+A1," in text


def test_the_page_of_a_release_is_an_address_of_the_web() -> None:
    with pytest.raises(ValueError, match="url"):
        PublishOptions(url="javascript:alert(1)")


def images_of(run: MadeRun) -> pd.DataFrame:
    """The images of a made run as they were collected."""
    return run.index[["image_id", "split", "landmark_id"]].assign(path=run.index["image_id"])


@pytest.mark.filterwarnings("ignore")  # datasets' own
def test_hugging_face_loads_labels_and_images_by_their_cards(run: MadeRun, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    out, cache = release(run), str(tmp_path / "hf")
    labels = datasets.load_dataset(str(out), "labels", cache_dir=cache)
    assert labels["train"]["hierarchical_label"] == ["church", "church", "bridge", "lake", "lake"]
    lineage = datasets.load_dataset(str(out), "lineage", cache_dir=cache)
    assert lineage["rows"][0]["decided_by"] == "decision"
    images = datasets.load_dataset(str(out / "shards"), cache_dir=cache)["evaluation"]
    assert images.num_rows == 10 and images[0]["jpg"].size == (48, 32)


@pytest.mark.filterwarnings("ignore")  # datasets' own
def test_hugging_face_loads_a_class_that_is_called_none(run: MadeRun, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    run.hierarchy["path"] = run.hierarchy["path"].str.replace("bridge", "None")
    run.hierarchy["path"] = run.hierarchy["path"].str.replace("lake", "NA")
    out = release_classes(run, context(tmp_path, "folder"))
    labels = datasets.load_dataset(str(out), "labels", cache_dir=str(tmp_path / "hf"))["rows"]
    assert labels["supercategory"] == ["church", "church", "None", "NA", "NA"]
    assert "pandas.read_csv(FILE, dtype=str, keep_default_na=False)" in card(out)[1]


@pytest.mark.parametrize("levels", [("landmark",), ("supercategory", "landmark")], ids=len)
def test_a_hierarchy_with_few_levels_is_released_too(
    levels: tuple[str, ...], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "work", levels)
    held = (run.shards, run.evaluation, table("export_dropped"), table("removals"))
    out = release_classes(run, context(tmp_path), *held)
    assert (out / "figures" / "groups.png").is_file() == (len(levels) > 1)
    assert len((out / "images.csv").read_text().splitlines()) == 11
    assert len(card(out)[1]) > 500 and (out / "shards" / "manifest.json").is_file()


def test_images_of_one_tar_are_told_apart_and_a_number_of_two_classes_is_refused() -> None:
    texts = [json.dumps({"kind": "a", "class": name}) for name in ("x", "y")]
    hierarchy = pd.DataFrame({"split": ["train", "index"], "landmark_id": [5, 6], "path": texts})
    paths, twice = number_classes(hierarchy), number_classes(hierarchy.assign(landmark_id=5))
    images = pd.DataFrame({
        "split": ["train", "index", "index"], "image_id": ["p/1", "q", "r"],
        "landmark_id": [5, 6, 6], "path": ["p/1.jpg", "far.tar", "far.tar"],
    })  # fmt: skip
    rows = content.sheet_of_images(paths, images, None).rows
    assert rows["path"].tolist() == ["p/1.jpg", "q", "r"]
    alone = content.sheet_of_images(paths, images[1:2], None).rows
    assert alone["path"].tolist() == ["q"]
    with pytest.raises(InvalidData, match="number 5 is one class in the training data and another"):
        content.sheet_of_paths(twice, images[["split", "landmark_id"]])
