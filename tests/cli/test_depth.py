"""The builder's commands at other depths than H-GLDv2's: two, four and five levels."""

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests import in_process
from tests.cli.test_reviews import decide, hgld, made, rows_of
from tests.warm import Command

__all__ = ["made"]  # the fixture

TAXONOMIES = {  # number of levels above the landmarks -> kind of each supercategory
    1: {"church": "", "lake": "", "restaurant": ""},
    3: {
        "church": "made > house",
        "lake": "grown > water",
        "restaurant": "made > house",
    },
    4: {
        "church": "world > made > house",
        "lake": "world > grown > water",
        "restaurant": "world > made > house",
    },
}
ANSWERS = {
    **dict.fromkeys(("church", "chapel"), "church"),
    **dict.fromkeys(("lake", "pond"), "lake"),
    **dict.fromkeys(("pub", "inn"), "restaurant"),
}
STAGES = ("cluster", "review", "label", "publish")


def deepen(folder: Path, above: int, out: Path) -> Path:
    """A copy of the review with so many levels above the landmarks."""
    shutil.copytree(folder, out)
    names = [f"level {number}" for number in range(1, above + 1)]
    numbers = {1: [], 3: [2, 3], 4: [1, 2, 3]}[above]
    text = (out / "pipeline.toml").read_text()
    said = f"[cluster]\nlevels = {json.dumps(names)}\nabove = {numbers}\n"
    (out / "pipeline.toml").write_text(
        text.replace("[cluster]\n", said) + '[publish]\nname = "Deep"\n'
    )
    images = pd.read_parquet(out / "work" / "images.parquet")
    images.assign(path=images["image_id"] + ".jpg").to_parquet(out / "work" / "images.parquet")
    rows = "".join(f"{name},{kind},\n" for name, kind in TAXONOMIES[above].items())
    (out / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n" + rows)
    return out


def decide_all(folder: Path) -> None:
    hgld(folder, "cluster")
    hgld(folder, "review", code=20)
    decide(folder, ANSWERS, code=0)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A folder with three levels above the landmarks, and a decision on every value."""
    made = deepen(made, 3, tmp_path / "deep")
    decide_all(made)
    return made


@pytest.mark.parametrize("above", TAXONOMIES)
def test_the_commands_make_paths_of_any_depth(made: Path, tmp_path: Path, above: int) -> None:
    folder = deepen(made, above, tmp_path / "deep")
    decide_all(folder)
    hgld(folder, "label")
    paths = [json.loads(row["path"]) for row in rows_of(folder / "work" / "hierarchy.csv")]
    kind = TAXONOMIES[above]["lake"]
    names = [*filter(None, kind.split(" > ")), "lake", "lake no. 4"]
    assert list(paths[4].values()) == names and len(paths) == 12
    assert list(paths[4]) == [*(f"level {i}" for i in range(1, above + 1)), "class"]
    hgld(folder, "publish")
    released = rows_of(folder / "work" / "release" / "labels.csv")
    assert {name: released[4][name] for name in paths[4]} == paths[4]
    work, release = folder / "work", folder / "work" / "release"
    words = ["explain", folder / "pipeline.toml", "train:4", "--work", work]
    said = in_process.hgld("labels", *words).out
    assert " > ".join(names) in " ".join(said.split())
    for other in (work, release / "labels.csv", release):
        lines = in_process.hgld("labels", "compare", work, other).out.splitlines()[2:]
        assert lines[0] == "classes      A 12, B 12, both 12"
        same = [line[13:] for line in lines[2:]]
        assert same == [f"level {i}: 12 of 12 (100.0 %)" for i in range(1, above + 1)]
    counts = {1: (3,), 3: (2, 2, 3), 4: (1, 2, 2, 3)}[above]
    found = ", ".join(f"level {i} {count}" for i, count in enumerate(counts, 1))
    checked = in_process.hgld("labels", "check", release / "labels.csv").out
    assert checked == f"labels.csv:\n       12 classes ({found})\n"


def test_a_renamed_branch_and_a_moved_group_are_counted_at_their_levels(tmp_path: Path) -> None:
    """16 classes with four levels above; a branch has 4 classes, a group 2."""
    levels = ["root", "realm", "branch", "group", "class"]
    before = [
        ["life", f"realm {i // 8}", f"branch {i // 4}", f"group {i // 2}", f"class {i:02}"]
        for i in range(16)
    ]
    renamed = [["twigs" if name == "branch 0" else name for name in path] for path in before]
    moved = [[*path[:1], "realm 0", "branch 1", *path[3:]] if path[3] == "group 7" else path
             for path in renamed]  # fmt: skip
    split_group = [[*path[:3], "group 4", path[4]] if path[4] == "class 10" else path
                   for path in moved]  # fmt: skip
    for side, paths in (("a", before), ("b", split_group)):
        rows = [json.dumps(dict(zip(levels, path, strict=True))) for path in paths]
        table = pd.DataFrame({"split": "train", "landmark_id": range(16), "path": rows})
        (tmp_path / side).mkdir()
        table.to_csv(tmp_path / side / "hierarchy.csv", index=False)
    compare = ("labels", "compare", tmp_path / "a", tmp_path / "b")
    assert in_process.hgld(*compare).out.splitlines()[2:] == [
        "classes      A 16, B 16, both 16",
        "             only in A (lost) 0, only in B (added) 0",
        "same         root: 16 of 16 (100.0 %)",
        "             realm: 14 of 16 (87.5 %)",
        "             branch: 10 of 16 (62.5 %)",
        "             group: 15 of 16 (93.8 %)",
        "",
        "group                          A       B    same    left    came    lost   added",
        "group 4                        2       3       2       0       1       0       0",
        "group 5                        2       1       1       1       0       0       0",
        "",
        "A says                  B says                    classes",
        "group 5                 group 4                         1",
    ]
    found = json.loads(in_process.hgld(*compare, "--json").out)
    assert found["levels"] == {"root": 16, "realm": 14, "branch": 10, "group": 15}


def test_clusters_of_each_level_are_in_both_sheets(made: Path, tmp_path: Path) -> None:
    folder = deepen(made, 4, tmp_path / "deep")
    hgld(folder, "cluster")
    hgld(folder, "review", code=20)
    for name in ("cluster_summary.csv", "review_clusters.csv"):
        rows = rows_of(folder / "work" / name)
        assert len({row["level_level 1"] for row in rows}) == 1
        assert len({row["level_level 2"] for row in rows}) == 2
        assert len({row["level_level 3"] for row in rows}) == 3


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("lake,made,", "row 3: kind 'made': expected LEVEL 1 > LEVEL 2"),
        ("lake,made > ,", "row 3: kind 'made > ': expected LEVEL 1 > LEVEL 2"),
        ("lake,made >  water,", "row 3: kind is 'made > water'; expected 'made > water'"),
        (
            "lake,grown > house,",
            "row 4: level 2 'house' is below 'made' here and below 'grown' above",
        ),
        (
            "lake,water > grown,",
            "row 3: 'grown' is below 'water' here and above it in the rows above",
        ),
        ("lake,sea > grown,", "row 3: 'grown' is below 'sea' here and above it in the rows above"),
        (",made > house,", "row 3: supercategory is empty; fill it in, or delete the row"),
        ("Sea,grown > water,", "row 3: supercategory 'Sea' is there already, as 'sea'"),
        ("lake,,", "row 3: kind '': expected LEVEL 1 > LEVEL 2, as cluster.levels has; fill it in"),
    ],
)
def test_a_fault_of_the_taxonomy_is_one_line_with_its_row(
    made: Path, tmp_path: Path, row: str, says: str
) -> None:
    folder = deepen(made, 3, tmp_path / "deep")
    taxonomy = folder / "labels" / "taxonomy.csv"
    taxonomy.write_text(
        f"supercategory,kind,definition\nsea,grown > water,\n{row}\nchurch,made > house,\n"
    )
    assert says in " ".join(hgld(folder, "review", code=3).err.split())


def test_taxonomy_edits_follow_the_levels(folder: Path) -> None:
    done = hgld(folder, "taxonomy", "add", "sea", "--kind", "grown > house", code=3)
    assert "'house' is below 'grown' here and below 'made' above" in done.err
    hgld(folder, "taxonomy", "add", "sea", "--kind", "grown", code=3)
    hgld(folder, "taxonomy", "add", "sea", "--kind", "grown > water")
    hgld(folder, "taxonomy", "describe", "lake", "--kind", "grown > still water")
    decided = rows_of(folder / "labels" / "decisions.csv")
    assert {r["kind"] for r in decided[-2:]} == {"grown > still water"}
    hgld(folder, "reviews", "undo", "--apply", "3")
    kinds = {r["supercategory"]: r["kind"] for r in rows_of(folder / "labels" / "taxonomy.csv")}
    assert kinds["lake"] == "grown > water" and kinds["sea"] == "grown > water"


def test_a_class_above_is_renamed_in_one_entry_and_taken_back(folder: Path) -> None:
    decisions = len(rows_of(folder / "labels" / "decisions.csv"))

    def kinds() -> list[str]:
        return [row["kind"] for row in rows_of(folder / "labels" / "taxonomy.csv")]

    rename = ("taxonomy", "rename")
    hgld(folder, *rename, "Made", "built by people", "--level", "level 1")
    moved = ["built by people > house", "grown > water", "built by people > house"]
    assert kinds() == moved
    rows = rows_of(folder / "labels" / "decisions.csv")[decisions:]
    assert {row["kind"] for row in rows} == {moved[0]} and len(rows) == 4
    assert {row["decision"] for row in rows} == {"keep"}
    hgld(folder, "reviews", "undo", "--apply", "2")
    assert kinds() == ["made > house", "grown > water", "made > house"]
    for words, code, says in (
        (("made", "built", "--level", "level 3"), 2, "expected one of level 1, level 2"),
        (("sky", "air", "--level", "level 1"), 3, "no level 1 'sky'"),
        (("made", "Grown", "--level", "level 1"), 3, "level 1 'grown' is there already"),
        (("made", "a > b", "--level", "level 1"), 3, "expected a name without '>'"),
    ):
        assert says in hgld(folder, *rename, *words, code=code).said


@pytest.mark.parametrize(
    "row",
    [
        "add,,made > house,,inn",
        "add,,made > mast,,tower",
        "describe,,made > house,of stone,church",
    ],
)
def test_a_list_of_edits_from_before_a_rename_does_not_bring_the_class_above_back(
    folder: Path, tmp_path: Path, row: str
) -> None:
    hgld(folder, "taxonomy", "rename", "made", "built", "--level", "level 1")
    before = (folder / "labels" / "taxonomy.csv").read_bytes()
    sheet = tmp_path / "review_taxonomy.csv"
    sheet.write_text(f"action,into,kind,definition,supercategory\n{row}\n")
    said = hgld(folder, "review", sheet, "--apply", code=3).err
    assert "row 2: '" in said and "would bring 'made' back, which is 'built' since; " in said
    assert (folder / "labels" / "taxonomy.csv").read_bytes() == before
    sheet.write_text(sheet.read_text().replace("made", "built"))
    hgld(folder, "review", sheet, "--apply")


@pytest.mark.slow
def test_kills_at_five_levels_lose_nothing_and_change_no_byte(made: Path, tmp_path: Path) -> None:
    whole, killed = (deepen(made, 4, tmp_path / name) for name in ("whole", "killed"))
    for folder in (whole, killed):
        decide_all(folder)
    for stage in STAGES:
        hgld(whole, stage, "--force")
    draw = random.Random(19)
    for stage in STAGES:
        words = [stage, killed / "pipeline.toml", "--work", killed / "work", "--now", "2026-11-21"]
        with Command([*words, "--force"], stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(draw.uniform(0.1, 1.5))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        hgld(killed, stage)
    for name in ("labels/decisions.csv", "work/clusters.csv", "work/hierarchy.csv",
                 "work/lineage.csv", "work/release/SHA256SUMS"):  # fmt: skip
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


def clustered(made: Path, out: Path) -> Path:
    """A copy with clusters of three levels and an empty taxonomy."""
    folder = deepen(made, 3, out)
    (folder / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    hgld(folder, "cluster")
    return folder


def test_a_taxonomy_is_proposed_from_the_clusters_and_taken_back(
    made: Path, tmp_path: Path
) -> None:
    folder = clustered(made, tmp_path / "deep")
    taxonomy = folder / "labels" / "taxonomy.csv"
    for _ in range(2):  # the second time there is nothing to add
        proposed = hgld(folder, "taxonomy", "propose")
        assert "stale" not in proposed.err
        rows = rows_of(taxonomy)
        assert len(rows) == 3 and all(row["kind"].count(" > ") == 1 for row in rows)
        assert len({row["kind"].partition(" > ")[0] for row in rows}) == 2
        paths = [[*row["kind"].split(" > "), row["supercategory"]] for row in rows]
        assert all(len(set(path)) == len(path) for path in paths)
    hgld(folder, "reviews", "undo", "--apply", "1")
    assert rows_of(taxonomy) == []
    none = ("--set", "cluster.above=[]")
    stale = "the clusters are stale (cluster.above: [2, 3] -> [])"
    assert stale in hgld(folder, "taxonomy", "propose", *none).err
    hgld(folder, "cluster", *none)
    done = hgld(folder, "taxonomy", "propose", *none, code=2)
    assert "set cluster.above to the numbers of level 1, level 2" in done.err


def test_levels_that_are_added_later_are_proposed_for_the_supercategories(folder: Path) -> None:
    taxonomy = folder / "labels" / "taxonomy.csv"
    taxonomy.write_text("supercategory,kind,definition\nchurch,,\nlake,,\nrestaurant,,\n")
    assert "`hgld taxonomy propose` fills in empty kinds" in hgld(folder, "label", code=3).err
    hgld(folder, "taxonomy", "describe", "lake", "--kind", "grown > water")
    hgld(folder, "taxonomy", "propose")
    kinds = {row["supercategory"]: row["kind"] for row in rows_of(taxonomy)}
    assert [*kinds] == ["church", "lake", "restaurant"] and kinds["lake"] == "grown > water"
    assert all(kinds[name].count(" > ") == 1 for name in ("church", "restaurant"))
    hgld(folder, "label")
    assert len(rows_of(folder / "work" / "hierarchy.csv")) == 12


def test_a_missing_taxonomy_is_asked_for_with_its_header(made: Path, tmp_path: Path) -> None:
    folder = deepen(made, 3, tmp_path / "deep")
    (folder / "labels" / "taxonomy.csv").unlink()
    said = hgld(folder, "embed", code=1).err
    assert "the header supercategory,kind,definition, at first without rows" in said


@pytest.mark.parametrize("by", ["propose", "sheet"])
def test_a_level_is_added_to_a_taxonomy_that_has_levels_above(folder: Path, by: str) -> None:
    hgld(folder, "label")
    before = {row["landmark_id"]: row["supercategory"] for row in lineage(folder)}
    more = ["cluster.levels=['world','realm','aisle','shelf']", "cluster.above=[1,2,3]"]
    words = [part for setting in more for part in ("--set", setting)]
    done = hgld(folder, "label", *words, code=3)
    assert "`hgld taxonomy propose` fills in empty kinds" in done.err
    if by == "propose":
        hgld(folder, "cluster", *words)
        hgld(folder, "taxonomy", "propose", *words)
    else:
        sheet = folder / "work" / "review_taxonomy.csv"
        text = sheet.read_text("utf-8-sig")
        sheet.write_text(text.replace("made >", "all > made >").replace("grown >", "all > grown >"))
        hgld(folder, "review", "--apply", *words)
    kinds = [row["kind"] for row in rows_of(folder / "labels" / "taxonomy.csv")]
    assert [kind.count(" > ") for kind in kinds] == [2, 2, 2]
    assert by == "propose" or kinds[1] == "all > grown > water"
    hgld(folder, "label", *words)
    assert {row["landmark_id"]: row["supercategory"] for row in lineage(folder)} == before


def lineage(folder: Path) -> list[dict[str, str]]:
    return rows_of(folder / "work" / "lineage.csv")


def test_clusters_whose_names_differ_in_capitals_are_a_supercategory_each(
    made: Path, tmp_path: Path
) -> None:
    folder = clustered(made, tmp_path / "deep")
    taxonomy, summary = folder / "labels" / "taxonomy.csv", folder / "work" / "cluster_summary.csv"
    table = pd.read_csv(summary, dtype=str, keep_default_na=False)
    names = ["cluster_name", "level_level 1", "level_level 2"]
    table.loc[:1, names] = [["Pub", "Tall", "Inn"], ["pub", "tall", "inn"]]
    table.to_csv(summary, index=False)
    hgld(folder, "taxonomy", "propose")
    kinds = {row["supercategory"]: row["kind"] for row in rows_of(taxonomy)}
    assert len(kinds) == 3
    assert kinds["Pub"] == "Tall > Inn"
    assert kinds["pub (2)"] == "tall (level 1) > inn (level 2)"


@pytest.mark.parametrize(
    ("clusters", "proposed"),
    [
        (["pub", "pub", "pub (2)"], ["pub", "pub (3)", "pub (2)"]),
        (["خانه\u200cها", "\U0001f468\u200d\U0001f467", "\U0001fae8"], None),  # joiners, new emoji
        (["it\x99s", "inn", "pub"], ["its", "inn", "pub"]),
    ],
)
def test_clusters_are_proposed_whatever_their_names_are(
    made: Path, tmp_path: Path, clusters: list[str], proposed: list[str] | None
) -> None:
    folder = clustered(made, tmp_path / "deep")
    taxonomy, summary = folder / "labels" / "taxonomy.csv", folder / "work" / "cluster_summary.csv"
    table = pd.read_csv(summary, dtype=str, keep_default_na=False)
    table.loc[table["values"] != "0", "cluster_name"] = clusters
    table.to_csv(summary, index=False)
    for _ in range(2):  # the second time there is nothing to add
        hgld(folder, "taxonomy", "propose")
        found = [row["supercategory"] for row in rows_of(taxonomy)]
        assert sorted(found) == sorted(proposed or clusters)


def test_supercategories_without_values_are_named_as_kinds_are_proposed(folder: Path) -> None:
    taxonomy = folder / "labels" / "taxonomy.csv"
    rows = "church,made > house,\nlake,grown > water,\nrestaurant,{},\nunused,,\nempty,,\n"
    fault = "no cluster has decided values of unused, empty"
    for kind, code in (("", 0), ("made > inn", 2)):
        text = f"supercategory,kind,definition\n{rows.format(kind)}"
        taxonomy.write_text(text)
        assert fault in hgld(folder, "taxonomy", "propose", code=code).err
        kinds = {row["supercategory"]: row["kind"] for row in rows_of(taxonomy)}
        assert [*kinds] == ["church", "lake", "restaurant", "unused", "empty"]
        assert kinds["unused"] == kinds["empty"] == "" and " > " in kinds["restaurant"]
    assert taxonomy.read_text() == text
