"""Class sub-folders without labels become a reviewed hierarchy by the commands of a page alone."""

import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts import declared_table
from hgld.config import Pipeline, load_pipeline
from hgld.pipeline.draft import Draft, draft_pipeline, write_draft
from tests import in_process
from tests.mediawiki.wiki import Wiki, install, require_mediawiki, serve_world
from tests.mediawiki.world import World
from tests.warm import Command, hgld, python

PAGE = Path("docs/from-class-names.md")
TWO, THREE = PAGE.read_text("utf-8").split("## 6. Three levels")  # levels of their pipelines
SMALL = {  # of what `hgld new` wrote: a run that takes seconds
    "image_size = 96": "image_size = 32",
    "steps = 100 ": "steps = 1 ",
    "[publish]": "[report]\ngrid_queries = 1\nvector_figures = []\n[publish]",
}
ENDS = (20, 20, 20, 0, 20)  # of run and review; 20: values are open
GROUPS = {
    "arch bridge": "bridge",
    "bridge": "bridge",
    "castle": "fortification",
    "chapel": "church",
    "church building": "church",
    "fortress": "fortification",
    "hill": "mountain",
    "lake": "water",
    "lighthouse": "tower",
    "mountain": "mountain",
    "reservoir": "water",
    "waterfall": "water",
    "windmill": "tower",
}


def make_photos(folder: Path) -> None:
    """The folders of the page, by its own example, of the quickstart's photos."""
    pipeline = Path("pipelines/quickstart.toml").absolute()
    work = folder / "work" / "quickstart"
    hgld(folder, "run", str(pipeline), "--work", str(work), "--until", "clean", code=0)
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        python(folder, "-c", example)


def draw_classes(folder: Path) -> None:
    for name in ("apple pie", "red fox"):
        (folder / name).mkdir(parents=True)
        for j in range(3):
            Image.new("RGB", (40, 32), (0, 40 * j, 90)).save(folder / name / f"{j}.png")


def shrink(file: Path) -> None:
    text = file.read_text()
    for line, smaller in SMALL.items():
        assert line in text
        text = text.replace(line, smaller)
    file.write_text(text)


def ask_wikidata(file: Path) -> None:
    """Write the options of the page into the file; without a network the contact has no effect."""
    whole, dump = re.findall(r"```toml\n(.*?)```", TWO, re.S)
    line = 'source = "names"'
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, "#").replace("[scrape]\n", whole + dump))


def edit(sheet: Path, rows: pd.DataFrame) -> None:
    rows.to_csv(sheet, index=False, encoding="utf-8-sig", lineterminator="\r\n")


def decide(work: Path) -> None:
    """Take every suggestion but that of the class that is none, as a person would."""
    sheet = work / "review.csv"
    values = pd.read_csv(sheet, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    none = values["instance_of"] == "tourist attraction"
    values["supercategory"] = values["suggestion"].mask(none, "")
    edit(sheet, values.assign(decision=none.map({True: "drop", False: "keep"})))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a person with photos of the page's classes."""
    folder = tmp_path_factory.mktemp("person")
    make_photos(folder)
    return folder


@pytest.mark.slow
def test_three_levels_are_made_by_the_commands_of_the_page(photos: Path) -> None:
    ends = [20, 20, 0]  # of run
    (levels,) = re.findall(r"```toml\n\[cluster\]\n(.*?)```", THREE, re.S)
    for words in map(shlex.split, re.findall(r"^hgld (.*)$", THREE, re.M)):
        if "--apply" in words:
            decide(photos / "work" / "deep")
        done = hgld(photos, *words)
        assert done.returncode == (ends.pop(0) if words[0] == "run" else 0), (words, done.stderr)
        if words[0] == "new":
            file = photos / words[-1]
            file.write_text(file.read_text().replace('levels = ["supercategory"]', levels.strip()))
    rows = pd.read_csv(photos / "work" / "deep" / "hierarchy.csv")["path"].map(json.loads)
    assert list(rows[0]) == ["realm", "group", "class"]
    assert {"realm": "natural", "group": "hill", "class": "mountain"} in rows.tolist()
    realms = {path["realm"] for path in rows}
    assert realms == {"built", "crossing", "sacred", "natural"} and len(rows) == 13


@pytest.fixture(scope="module")
def folder(photos: Path) -> Path:
    """The folder of a person after the commands of the page, up to two levels."""
    folder = photos
    ends = list(ENDS)
    for words in map(shlex.split, re.findall(r"^hgld (.*)$", TWO, re.M)):
        if "--apply" in words:
            decide(folder / "work" / "mine")
        done = hgld(folder, *words)
        if words[0] == "new":
            assert done.stdout.replace("kinds", "mine") in TWO, done.stderr
            shrink(folder / words[-1])
            if words[-1] == "kinds.toml":
                ask_wikidata(folder / words[-1])
        waits = words[0] in ("run", "review") and "--apply" not in words
        assert done.returncode == (ends.pop(0) if waits else 0), (words, done.stderr)
    assert not ends
    return folder


@pytest.mark.slow
def test_the_tree_of_the_page_is_that_of_the_photos(folder: Path) -> None:
    for name, file in re.findall(r"^  ([a-z ]+)/([0-9a-f]+\.jpg) ", PAGE.read_text("utf-8"), re.M):
        assert min(path.name for path in (folder / "photos" / name).iterdir()) == file


@pytest.mark.slow
def test_each_class_has_the_reviewed_path_and_its_own_name(folder: Path) -> None:
    rows = pd.read_csv(folder / "work" / "mine" / "hierarchy.csv")
    paths = [tuple(json.loads(path).items()) for path in rows["path"]]
    assert paths == [(("supercategory", group), ("class", name)) for name, group in GROUPS.items()]


@pytest.mark.slow
def test_the_report_and_the_release_are_of_these_classes(folder: Path) -> None:
    work = folder / "work" / "mine"
    report = (work / "report" / "report.html").read_text("utf-8")
    assert "fortress" in report and "class classes" not in report
    labels = pd.read_csv(work / "release" / "labels.csv")
    assert labels["class"].tolist() == list(GROUPS)
    assert len(pd.read_csv(work / "release" / "images.csv")) == 561
    assert len(pd.read_csv(work / "release" / "decisions.csv")) == 14


@pytest.mark.slow
def test_items_of_the_classes_leave_the_values_of_the_page_to_decide(folder: Path) -> None:
    work = folder / "work" / "kinds"
    named = pd.read_csv(work / "landmarks.csv").merge(pd.read_csv(work / "landmark_values.csv"))
    classes = named.query("order == 0").groupby("instance_of")["name"].agg(", ".join)
    table = TWO.rpartition("| value | classes |\n|---|---|\n")[2]
    rows = re.findall(r"^\| (.*) \| (.*) \|$", table, re.M)
    assert dict(rows) == classes.to_dict()
    assert [row[0] for row in rows] == pd.read_csv(work / "review.csv")["instance_of"].tolist()


@pytest.fixture(scope="module")
def wiki(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wiki]:
    """A MediaWiki that has the items of the page's dump."""
    require_mediawiki()
    temporary = tmp_path_factory.mktemp("mediawiki")
    items = json.loads((folder / "items.json").read_text("utf-8"))
    world = World(entities={item["id"]: item for item in items})
    with serve_world(install(temporary / "template"), temporary / "wiki", world) as wiki:
        yield wiki


@pytest.fixture(scope="module")
def served(folder: Path, wiki: Wiki) -> Path:
    """The folder after both ways through the review, and the wiki's up to the release."""
    text = (folder / "kinds.toml").read_text()
    address = f'wikidata_api = "{wiki.url}"'
    text = text.replace("labels/kinds", "labels/served").replace(
        'dump_entities = "items.json"', address
    )
    assert address in text
    (folder / "served.toml").write_text(text)
    (folder / "labels" / "served").mkdir()
    shutil.copy(folder / "labels" / "kinds" / "taxonomy.csv", folder / "labels" / "served")
    for name, until in (("kinds", ["--until", "label"]), ("served", [])):
        file = f"{name}.toml"
        for words, ends in (
            (["run", file], 20),
            (["taxonomy", "propose", file], 0),
            (["run", file], 20),
            (["review", file, "--apply"], 0),
            (["run", file, *until], 0),
        ):
            if "--apply" in words:
                decide(folder / "work" / name)
            done = hgld(folder, *words)
            assert done.returncode == ends, (words, done.stderr)
    return folder


@pytest.mark.slow
def test_a_wiki_and_the_dump_lead_to_the_same_items(served: Path, wiki: Wiki) -> None:
    asked = {line["action"] for line in wiki.requests()}
    assert asked == {"wbsearchentities", "wbgetentities"}
    for name in ("linked.csv", "ancestry.csv"):
        ours, theirs = (
            pd.read_csv(served / "work" / way / name).drop(columns="revision")
            for way in ("kinds", "served")
        )
        assert len(ours) > 10 and ours.equals(theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    ["labels/{}/decisions.csv", "labels/{}/taxonomy.csv", "work/{}/values.csv",
     "work/{}/hierarchy.csv"],
)  # fmt: skip
def test_a_wiki_and_the_dump_lead_to_the_same_decisions(served: Path, file: str) -> None:
    ours, theirs = ((served / file.format(way)).read_bytes() for way in ("kinds", "served"))
    assert ours == theirs and ours.count(b"\n") > 5


@pytest.mark.slow
def test_items_of_the_wiki_reach_the_report_and_the_release(served: Path) -> None:
    work = served / "work" / "served"
    assert "fortress" in (work / "report" / "report.html").read_text("utf-8")
    assert set(pd.read_csv(work / "release" / "linked.csv")["by"]) == {"name (en)"}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["README.md", "LICENSE-labels.md", "croissant.json"])
def test_the_release_names_no_landmarks(folder: Path, file: str) -> None:
    path = folder / "work" / "mine" / "release" / file
    text = path.read_text("utf-8").lower() if path.exists() else ""
    assert "landmark" not in text.replace("landmark_id", "")


def draft(
    tmp_path: Path, labels: str, name: str = "labels.csv"
) -> subprocess.CompletedProcess[str]:
    """`hgld new` on six images of a CSV."""
    for i in range(6):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    (tmp_path / "photos" / name).write_text(labels)
    return hgld(tmp_path, "new", "photos")


def rows(*classes: str) -> str:
    return "".join(f"{i}.png,{name}\n" for i, name in enumerate(classes))


def test_a_csv_with_levels_keeps_its_hierarchy(tmp_path: Path) -> None:
    done = draft(tmp_path, "path,group,kind of bird\n" + rows(*["a,x", "a,y", "b,z"] * 2))
    assert done.returncode == 0, done.stderr
    pipeline = load_pipeline(tmp_path / "photos.toml")
    assert pipeline.label.source == "folder" and pipeline.source.labels_csv == "labels.csv"


def test_a_csv_with_its_ending_in_capitals_is_read(tmp_path: Path) -> None:
    (tmp_path / "photos" / "other").mkdir(parents=True)  # else this folder would be a class
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "other" / "0.png")
    done = draft(tmp_path, "path,class\n" + rows(*"xyx"), "Labels.CSV")
    assert done.stdout.startswith("photos: 2 classes by Labels.CSV, 3 images\n"), done.stdout
    assert load_pipeline(tmp_path / "photos.toml").source.labels_csv == "Labels.CSV"


def test_a_draft_of_repeated_names_qualifies_them_if_that_is_asked_for(tmp_path: Path) -> None:
    text = "path,group,class\n" + rows(*["a,x", "b,x", "b,z"] * 2)
    refused = draft(tmp_path, text)
    assert refused.returncode == 3 and "`hgld new --qualify` writes it" in refused.stderr
    done = hgld(tmp_path, "new", "photos", "--qualify", code=0)
    assert done.stdout.startswith("photos: 3 classes by labels.csv (group > class), 6 images\n")
    assert load_pipeline(tmp_path / "photos.toml").source.repeated_names == "qualify"


def test_a_name_with_an_apostrophe_stays_readable_in_a_draft(tmp_path: Path) -> None:
    draw_classes(tmp_path / 'Zo\u00eb\'s "best" & \\ \x7f')
    hgld(tmp_path, "new", 'Zo\u00eb\'s "best" & \\ \x7f', "--out", "x.toml", code=0)
    text = (tmp_path / "x.toml").read_text()
    assert 'folder = "Zo\u00eb\'s \\"best\\" & \\\\ \\u007f"\n' in text
    assert load_pipeline(tmp_path / "x.toml").title == 'Zo\u00eb\'s "best" & \\ \x7f'


def test_a_draft_for_a_class_with_one_photo_is_trained(tmp_path: Path) -> None:
    classes = ["oak", "fox", "fox", "fox", "cat", "cat"]
    done = draft(tmp_path, "path,group,class\n" + rows(*[f"{name[0]},{name}" for name in classes]))
    assert done.returncode == 0, done.stderr
    shrink(tmp_path / "photos.toml")
    assert 'batches.small_classes = "repeat"' in (tmp_path / "photos.toml").read_text()
    hgld(tmp_path, "run", "photos.toml", "--until", "train", code=0)
    assert (tmp_path / "work" / "photos" / "models").exists()


@pytest.mark.parametrize("split", ["evaluation", "validation", "test", "index"])
def test_a_draft_evaluates_on_the_split_that_is_not_trained_on(tmp_path: Path, split: str) -> None:
    classes = [f"{name},{of}" for of in ("train", split) for name in ("fox", "cat", "oak")]
    done = draft(tmp_path, "path,class,split\n" + rows(*classes))
    assert done.returncode == 0, done.stderr
    evaluate = load_pipeline(tmp_path / "photos.toml").evaluate
    assert (evaluate.query, evaluate.gallery) == (split, split)


@pytest.mark.parametrize("test", [True, False])
def test_a_draft_holds_out_classes_of_a_training_folder_beside_test_images_without_class(
    tmp_path: Path, test: bool
) -> None:
    for name in "abcd":
        (tmp_path / "photos/train" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / f"photos/train/{name}/1.png")
    if test:
        (tmp_path / "photos/test").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "photos/test/1.png")
    hgld(tmp_path, "new", "photos", code=0)
    done = hgld(tmp_path, "collect", "photos.toml", code=0)
    assert "train: 2 classes, 2 images; evaluation: 2 classes, 2 images" in done.stderr


def test_a_draft_counts_names_that_become_one_value_once(tmp_path: Path) -> None:
    classes = ["Elk", "elk", "red fox", "red_fox", "oak", "oak"]
    assert draft(tmp_path, "path,class\n" + rows(*classes)).returncode == 0
    assert load_pipeline(tmp_path / "photos.toml").cluster.clusters == 3


def test_a_draft_names_classes_without_photos(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    (tmp_path / "photos" / "lynx").mkdir()
    done = hgld(tmp_path, "new", "photos")
    assert done.returncode == 0 and "1 class without images: 'lynx'" in done.stderr


def test_ids_of_a_csv_become_links(tmp_path: Path) -> None:
    done = draft(tmp_path, "path,class,qid,gbif\n" + rows(*["fox,Q8332,", "cat,,2435099"] * 3))
    assert done.returncode == 0, done.stderr
    assert load_pipeline(tmp_path / "photos.toml").scrape.source == "items"
    said = "next: your e-mail or URL as contact in photos.toml, then hgld run photos.toml\n"
    assert done.stdout.endswith(said)
    links = (tmp_path / "labels" / "photos" / "links.csv").read_text().splitlines()
    assert sorted(links[1:]) == ["cat,,,,,2435099,,,", "fox,Q8332,,,,,,,"]


def test_links_name_classes_as_the_source_does(tmp_path: Path) -> None:
    decomposed = "cafe\u0301,Q8332"  # as macOS writes names
    assert draft(tmp_path, "path,class,qid\n" + rows(*[decomposed, "cat,"] * 3)).returncode == 0
    links = (tmp_path / "labels" / "photos" / "links.csv").read_text("utf-8").splitlines()
    assert links[1] == "caf\u00e9,Q8332,,,,,,,"


def test_a_class_with_two_items_is_refused_with_its_row(tmp_path: Path) -> None:
    done = draft(tmp_path, "path,class,qid\n" + rows("fox,Q1", "fox,Q2"))
    assert done.returncode == 3
    assert "labels.csv row 3: class 'fox' has another qid than in a row above" in done.stderr


def test_a_second_draft_overwrites_nothing(tmp_path: Path) -> None:
    assert draft(tmp_path, "path,class\n" + rows("fox", "cat")).returncode == 0
    before = (tmp_path / "photos.toml").read_bytes()
    again = hgld(tmp_path, "new", "photos")
    assert again.returncode == 2 and "photos.toml: exists" in again.stderr
    assert (tmp_path / "photos.toml").read_bytes() == before


def test_a_csv_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    draft(tmp_path, "path,class\n" + rows("fox", "cat"))
    done = hgld(tmp_path, "new", "photos/labels.csv", code=2)
    assert "photos/labels.csv: a file; name the folder of the images" in done.stderr


def test_rows_whose_files_are_missing_are_named(tmp_path: Path) -> None:
    done = draft(tmp_path, "path,class\nmissing.png,fox\n")
    assert done.returncode == 3
    assert "(missing.png: not in folder, no such file; labels.csv row 2)" in done.stderr
    assert done.stderr.count("note:") == 1  # of the missing one


def test_a_csv_without_paths_is_left_out_with_a_note(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    done = draft(tmp_path, "file,label\n0.png,fox\n")
    assert done.returncode == 0
    assert "labels.csv: no column path, so the sub-folders are the classes" in done.stderr


def test_folders_below_the_classes_are_named(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos" / "train" / "food")
    draw_classes(tmp_path / "photos" / "test")
    done = hgld(tmp_path, "new", "photos")
    assert "6 images in folders below those of the classes, first train/food/" in done.stderr


@pytest.mark.parametrize("before", ["", "./"])
def test_a_column_of_paths_of_another_name_is_named(before: str, tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    done = draft(tmp_path, f"photo,class\n{before}" + rows("fox", "cat"))
    assert done.returncode == 0
    assert "; if labels.csv names the classes, rename its column 'photo' to path\n" in done.stderr


@pytest.mark.parametrize(
    "text", ["about\n" + "x" * 400, "a,a\n1,2\n", "a,b\n1,2,3\n", "a\n" + "x" * 140_000, "a\n"]
)
def test_a_csv_of_something_else_does_no_harm(tmp_path: Path, text: str) -> None:
    draw_classes(tmp_path / "photos")
    done = draft(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert "so the sub-folders are the classes\n" in done.stderr


def test_a_line_break_in_a_name_ends_no_comment(tmp_path: Path) -> None:
    draw_classes(tmp_path / "two\nlines")
    hgld(tmp_path, "new", "two\nlines", code=0)
    assert load_pipeline(tmp_path / "two\nlines.toml").title == "two\nlines"


def test_the_command_in_a_draft_can_be_pasted(tmp_path: Path) -> None:
    draw_classes(tmp_path / "my photos")
    done = hgld(tmp_path, "new", "my photos")
    assert "\nnext: hgld run 'my photos.toml'\n" in done.stdout
    assert "\n#   hgld run 'my photos.toml'\n" in (tmp_path / "my photos.toml").read_text()


DEEP = {  # class -> its path of four levels above, coarse to fine
    "bread": ("world", "made", "food", "bakery"),
    "pie": ("world", "made", "food", "bakery"),
    "fox": ("world", "grown", "animal", "canid"),
    "wolf": ("world", "grown", "animal", "canid"),
    "oak": ("world", "grown", "plant", "tree"),
    "pine": ("world", "grown", "plant", "tree"),
}
KILLED_AFTER = ("collect", "hint", "label", "export", "train", "evaluate")  # in the stage after it


def draft_deep(folder: Path) -> Path:
    """A drafted pipeline of five levels whose classes are decided."""
    for number, name in enumerate(DEEP):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(4):
            color = (40 * number, 60 * i, 90)
            Image.new("RGB", (40, 32), color).save(folder / "photos" / name / f"{i}.png")
    file = folder / "deep.toml"
    hgld(folder, "new", "photos", "--out", file.name, code=0)
    shrink(file)
    levels = 'levels = ["root", "realm", "group", "supercategory"]'
    file.write_text(file.read_text().replace('levels = ["supercategory"]', levels))
    tables = {name: declared_table(name) for name in ("taxonomy", "decisions")}
    places = {path[-1]: " > ".join(path[:-1]) for path in DEEP.values()}
    rows: dict[str, list[dict[str, str]]] = {
        "taxonomy": [{"supercategory": name, "kind": kind} for name, kind in places.items()],
        "decisions": [
            {"key": name, "key_type": "label", "decision": "keep", "supercategory": path[-1],
             "kind": places[path[-1]], "who": "ann", "when": "2026-01-01"}
            for name, path in DEEP.items()
        ],
    }  # fmt: skip
    for name, table in tables.items():
        found = pd.DataFrame(rows[name]).reindex(columns=[*table.columns], fill_value="")
        table.write(found, folder / "labels" / "deep" / table.file)
    return file


def kill_after(folder: Path, stage: str, wait_s: float, *words: str) -> bool:
    """Kill a command so long after it has reported a stage; return whether it had not ended.

    An empty stage is the start of the command.
    """
    with Command(words, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        if stage:
            assert any(line.startswith(f"{stage} ") for line in process.stderr), stage
        time.sleep(wait_s)
        process.kill()
        process.stderr.read()
    return process.returncode == -signal.SIGKILL


def require_same_bytes(killed: Path, whole: Path) -> None:
    """Require the same files in two work folders, but for those that note times."""
    there, expected = (
        {
            str(path.relative_to(work)): path.read_bytes()
            for path in work.rglob("*")
            if path.is_file() and path.relative_to(work).parts[0] != ".state"
        }
        for work in (killed, whole)
    )
    differ = {name for name in {*there, *expected} if there.get(name) != expected.get(name)}
    assert differ <= {"lock.json", "models/happier/.timings.jsonl"} and len(expected) > 50


@pytest.mark.slow
def test_a_run_of_five_levels_is_killed_in_each_stage_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = draft_deep(tmp_path)
    run = ["run", file.name, "--now", "2026-01-01"]
    draw = random.Random(19)
    for stage in KILLED_AFTER:
        assert kill_after(tmp_path, stage, draw.uniform(0, 1), *run, "--work", "killed"), stage
    hgld(tmp_path, *run, "--work", "killed", code=0)
    monkeypatch.chdir(tmp_path)
    in_process.hgld(*run, "--work", "whole")  # this process hashes strings otherwise
    require_same_bytes(tmp_path / "killed", tmp_path / "whole")
    paths = pd.read_csv(tmp_path / "whole" / "hierarchy.csv")["path"].map(json.loads)
    assert {tuple(path.values()) for path in paths} == {(*p, n) for n, p in DEEP.items()}


def load_draft(photos: Path, file: Path, *sizes: int) -> Pipeline:
    """Draft a pipeline file for classes of so many images, and load it."""
    for number, size in enumerate(sizes):
        (photos / f"c{number}").mkdir(parents=True)
        for i in range(size):
            Image.new("RGB", (8, 8), (number, i, 0)).save(photos / f"c{number}" / f"{i}.png")
    (photos / "._labels.csv").write_bytes(b"\x00\x05\xff")  # macOS leaves such files
    write_draft(draft_pipeline(photos, file), file)
    return load_pipeline(file)


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [((1, 3, 3), (2, 2)), ((5,), (2, 4)), ((1, *[5] * 20), (15, 2)), ((3,) * 9, (4, 3))],
)
def test_a_draft_can_be_run_with_classes_of_any_size(
    tmp_path: Path, sizes: tuple[int, ...], batch: tuple[int, int]
) -> None:
    train = load_draft(tmp_path / "photos", tmp_path / "x.toml", *sizes).train
    assert (train.classes_per_batch, train.images_per_class) == batch


def test_a_draft_of_several_levels_has_no_taxonomy(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    rows = ["path,kind,class", "apple pie/0.png,food,apple pie", "red fox/0.png,animal,red fox"]
    (tmp_path / "photos" / "labels.csv").write_text("\n".join(rows) + "\n")
    draft = draft_pipeline(tmp_path / "photos", tmp_path / "x.toml")
    assert write_draft(draft, tmp_path / "x.toml") == [tmp_path / "x.toml"]
    assert 'labels = "labels/x" # may hold removals.csv' in draft.text


@pytest.mark.parametrize(("size", "share"), [(0, 0.5), (4, 0.5), (8, 0.25)])
def test_a_draft_holds_out_two_classes_of_a_group(tmp_path: Path, size: int, share: float) -> None:
    groups = [f"g{number // size}" if size else "" for number in range(16)]
    rows = [f"c{number}/0.png,{group},c{number}" for number, group in enumerate(groups)]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "labels.csv").write_text("path,group,class\n" + "\n".join(rows) + "\n")
    found = load_draft(tmp_path / "photos", tmp_path / "x.toml", *[2] * 16)
    assert found.collect.evaluation_share == share


def test_a_draft_in_a_linked_folder_finds_the_images(tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    photos = tmp_path / "photos"
    assert load_draft(photos, tmp_path / "link" / "x.toml", 3, 3).source.folder == photos


def test_a_draft_among_the_images_is_refused(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    done = hgld(tmp_path / "photos", "new", ".")
    assert done.returncode == 2 and "such as --out ../photos.toml" in done.stderr
    assert sorted(path.name for path in (tmp_path / "photos").iterdir()) == ["apple pie", "red fox"]


def test_a_loop_of_links_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = hgld(tmp_path, "new", "loop")
    assert done.returncode == 2 and "loop: no such folder" in done.stderr


def test_a_draft_that_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object, **__: object) -> int:
        path.touch()
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=r"mine\.toml"):
        write_draft(Draft("title = 1", {}, ""), tmp_path / "mine.toml")
    assert not (tmp_path / "mine.toml").exists()


@pytest.mark.parametrize(("folder", "said"), [("nowhere", "no such folder"), (".", "no image in")])
def test_a_folder_without_images_is_refused(tmp_path: Path, folder: str, said: str) -> None:
    done = hgld(tmp_path, "new", folder)
    assert done.returncode in (2, 3) and said in done.stderr


@pytest.mark.parametrize("ending", [".png", ""])
def test_a_column_of_names_of_files_is_named(tmp_path: Path, ending: str) -> None:
    draw_classes(tmp_path / "photos")
    (tmp_path / "photos/red fox").rename(tmp_path / "red fox")
    rows = f"0{ending},1\n1{ending},1\n"
    (tmp_path / "photos/labels.csv").write_text(f"image,class\n{rows}")
    done = hgld(tmp_path, "new", "photos")
    wanted = f"apple pie/0.png for 0{ending}"
    remedy = f"write paths in its column 'image' ({wanted}) and rename it to path\n"
    assert f"; if labels.csv names the classes, {remedy}" in done.stderr


def test_a_column_of_several_images_in_a_cell_is_named(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    done = draft(tmp_path, 'object,images\nfox,"0.png;\n1.png"\n')
    assert "a row for each image that a cell of its column 'images' names" in done.stderr


def test_a_table_that_is_no_csv_is_named(tmp_path: Path) -> None:
    draw_classes(tmp_path / "photos")
    pd.DataFrame({"path": ["a.png"], "class": ["fox"]}).to_excel(tmp_path / "photos/labels.xlsx")
    done = hgld(tmp_path, "new", "photos", code=0)
    assert (
        "photos: labels.xlsx: not read; to give the classes by a table, save it as" in done.stderr
    )
