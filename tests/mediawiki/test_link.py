"""Class names are linked to the items of a real MediaWiki, with names in three languages."""

import random
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import open_clip
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from hgld.artifacts import ARTIFACTS, table_of
from hgld.cli.review_pages import link_photos
from hgld.config import EmbedOptions, LinkOptions, load_pipeline
from hgld.errors import InvalidData
from hgld.hierarchy.link import Linker
from hgld.hierarchy.link_table import Said, apply_links
from hgld.hierarchy.scrape.answers import PARTS, LookUp, NamedItem
from hgld.hierarchy.scrape.items import DumpedItems
from hgld.pipeline.lock import Workspace
from hgld.pipeline.run import Runner
from tests import in_process
from tests.hierarchy.made_dump import write_dumps
from tests.listening import Notes
from tests.made_clip import save_clip
from tests.mediawiki.patience import early_requests
from tests.mediawiki.wiki import Wiki, serve_world
from tests.mediawiki.world import World, is_a, text_claim
from tests.warm import Command, hgld

pytestmark = pytest.mark.slow

PIPELINE = """
labels = "labels"
[source]
kind = "folder"
folder = "photos"
labels_csv = ""
[link]
languages = ["en", "de", "fr"]
about = "animals and planets"
[scrape]
source = "items"
contact = "someone@example.org"
properties = ["P279", "P171"]
most_hops = 5
roots = ["Q729"]
[embed]
encoder = "offline:minilm"
"""
CLASSES = (
    "red_fox", "Rotfuchs", "jaguar", "Mercury", "maned wolf", "grey thing", "Saturn", "old wolf",
    "given", "lost", "paged", "nobody", "\u72d0\u72f8",
)  # fmt: skip
LINKS = """name,qid,wikipedia
old wolf,Q9,
given,https://www.wikidata.org/wiki/Q25265,
lost,Q404,
paged,,https://de.wikipedia.org/wiki/Rotfuchs
nobody,none,
another data set,Q1,
"""


def add(world: World, item_id: str, *claims: Any, about: str = "", **labels: Any) -> None:
    """Add an item; a label is its name in a language, with aliases behind "|"."""
    names = {code: text.split("|") for code, text in labels.items()}
    world.item(item_id, *claims, **{code: some[0] for code, some in names.items()})
    entity = world.entities[item_id]
    entity["descriptions"] = {"en": {"language": "en", "value": about}} if about else {}
    entity["aliases"] = {
        code: [{"language": code, "value": alias} for alias in some[1:]]
        for code, some in names.items()
        if some[1:]
    }


def made_world() -> World:
    world = World(merged={"Q9": "Q18498"})
    up = {"prop": "P171"}
    about = "species of mammal, a wild animal"
    add(world, "Q8332", is_a("Q42430", **up), about=about, en="red fox|Vulpes vulpes",
        de="Rotfuchs", fr="renard roux", zh="\u8d64\u72d0")  # fmt: skip
    link = {"site": "dewiki", "title": "Rotfuchs", "badges": []}
    world.entities["Q8332"]["sitelinks"] = {"dewiki": link}
    add(world, "Q42430", is_a("Q25324", **up), en="Vulpes")
    add(world, "Q25324", is_a("Q729", **up), is_a("Q42430", **up), en="Canidae")  # a circle
    add(world, "Q729", is_a("Q1", **up), en="animal")
    add(world, "Q35694", is_a("Q127960", **up), about="species of big cat, an animal", en="jaguar")
    add(world, "Q127960", en="Panthera")
    add(world, "Q30055", about="British car manufacturer, a company", en="Jaguar")
    add(world, "Q308", is_a("Q634", prop="P279"), about="planet of the Solar System", en="Mercury")
    add(world, "Q925", about="chemical element with symbol Hg, a metal", en="mercury")
    add(world, "Q1150", about="Roman god of commerce", en="Mercury")
    add(world, "Q77", is_a("Q4167410"), about="disambiguation page", en="Mercury")
    add(world, "Q634", en="planet")
    add(world, "Q193", about="planet of the Solar System", en="Saturn")
    add(world, "Q1939", about="planet of the Solar System", en="Saturn")
    add(world, "Q18498", is_a("Q25324", **up), about="species of mammal", en="wolf", de="Wolf")
    add(world, "Q25265", is_a("Q25324", **up), en="Felidae")
    add(world, "Q173651", is_a("Q25324", **up), en="Chrysocyon", fr="loup|maned wolf")
    add(world, "Q500", en="grey thing of the north")
    add_found_otherwise(world)
    return world


def add_found_otherwise(world: World) -> None:
    """Items found by an id, by a category of Commons, or by the title of a page alone."""
    rose, dog, horse = (
        {"P846": "3000001"}, {"P8814": "02086723-n"}, {"P8814": "02374451-n"},
    )  # fmt: skip
    for item_id, ids, label in (("Q34687", rose, "R."), ("Q144", dog, "C."), ("Q726", horse, "E.")):
        claims = [text_claim(name, text) for name, text in ids.items()]
        add(world, item_id, *claims, is_a("Q14660", prop="P171"), en=label)
    add(world, "Q14660", is_a("Q756", prop="P171"), en="Rosoideae", de="Rosenartige")
    add(world, "Q756", is_a("Q19088", prop="P171"), en="Plantae")
    add(world, "Q19088", is_a("Q1", prop="P171"), en="Eukaryota")
    category = [is_a("Q4167836"), is_a("Q46360", prop="P301")]
    add(world, "Q9000", *category, en="Category:Ladies")
    world.page("Ladies", "Q9000")
    add(world, "Q46360", is_a("Q756", prop="P171"), about="species of insect", en="V. cardui")
    link = {"site": "dewiki", "title": "Distelfalter", "badges": []}
    world.entities["Q46360"]["sitelinks"] = {"dewiki": link}


def with_wiki(wiki: Wiki, *words: str) -> list[str]:
    settings = [f"scrape.{name}={wiki.url}" for name in ("commons_api", "wikidata_api")]
    settings.append("scrape.requests_per_second=3")
    parts = [part for setting in settings for part in ("--set", setting)]
    return [*words, "--now", "2026-11-21", *parts]


def run_with(folder: Path, wiki: Wiki, *words: str) -> subprocess.CompletedProcess[str]:
    return hgld(folder, *with_wiki(wiki, *words))


@pytest.fixture(scope="module")
def wiki(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wiki]:
    folder = tmp_path_factory.mktemp("links") / "wiki"
    with serve_world(template, folder, made_world()) as wiki:
        yield wiki


@pytest.fixture(scope="module")
def folder(wiki: Wiki, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of classes, after the stages from link to clean."""
    folder = tmp_path_factory.mktemp("person")
    for name in CLASSES:
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "1.jpg").write_bytes(b"jpeg")
    (folder / "labels").mkdir()
    (folder / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    (folder / "labels" / "links.csv").write_text(LINKS)
    (folder / "mine.toml").write_text(PIPELINE)
    for stage in ("link", "clean"):
        done = run_with(folder, wiki, "run", "mine.toml", "--until", stage)
        assert done.returncode == 0, done.stderr
        (folder / f"requests until {stage}").write_text(f"{len(wiki.requests())}")
    return folder


def table(folder: Path, name: str) -> pd.DataFrame:
    path = folder / "work" / "mine" / name
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")


def test_each_class_is_linked_by_what_is_known_of_it(folder: Path) -> None:
    linked = table(folder, "linked.csv")
    found = dict(
        zip(linked["name"], zip(linked["item_id"], linked["by"], strict=True), strict=True)
    )
    assert found == {
        "red_fox": ("Q8332", "name (en)"),
        "Rotfuchs": ("Q8332", "name (de)"),
        "maned wolf": ("Q173651", "name (fr)"),  # an alias
        "jaguar": ("Q35694", "name (en)"),  # not the company: the topic is animals and planets
        "Mercury": ("Q308", "name (en)"),
        "old wolf": ("Q18498", "qid"),  # was merged
        "given": ("Q25265", "qid"),
        "paged": ("Q8332", "wikipedia"),
    }


def test_each_unlinked_class_has_its_reason(folder: Path) -> None:
    classes, unlinked = table(folder, "landmarks.csv"), table(folder, "unlinked.csv")
    rows = unlinked.merge(classes, on=["split", "landmark_id"])
    assert dict(zip(rows["name"], rows["reason"], strict=True)) == {
        "Saturn": "ambiguous",
        "grey thing": "no_exact_name",
        "lost": "gone",
        "nobody": "none",
        "\u72d0\u72f8": "not_found",
    }
    assert "links.csv row 4: Q404 does not exist" in set(unlinked["detail"])


def test_values_are_what_the_properties_name_or_the_name_itself(folder: Path) -> None:
    values = set(table(folder, "values.csv")["instance_of"])
    assert values == {
        "Vulpes", "Panthera", "Canidae", "planet", "Saturn", "grey thing", "lost", "nobody",
        "\u72d0\u72f8",
    }  # fmt: skip


def test_the_way_up_ends_at_the_roots_and_passes_circles_once(folder: Path) -> None:
    ancestry = table(folder, "ancestry.csv")
    fox = ancestry[ancestry["item_id"] == "Q8332"].iloc[0]
    assert (fox["property"], fox["above"], fox["revision"]) == ("P171", "Q42430", "108332")
    assert fox["statement"].startswith("Q8332$")
    assert {"Q25324", "Q42430"} <= set(ancestry["item_id"])
    assert "Q729" not in set(ancestry["item_id"])  # a root: nothing above it is asked for


FOUND_OTHERWISE = """name,wordnet,gbif,commons_url
hound,02086723-n,,
rosa,,3000001,
lady,,,https://commons.wikimedia.org/wiki/Category:Ladies
nag,02374451-n,,
gone,,99,
"""


@pytest.fixture(scope="module")
def found_otherwise(wiki: Wiki, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose classes have ids, or the name of a page; with values in German."""
    folder = tmp_path_factory.mktemp("ids")
    for name in ("hound", "rosa", "lady", "nag", "gone", "Distelfalter"):
        (make(folder / "photos" / name) / "1.jpg").write_bytes(b"jpeg")
    (make(folder / "labels") / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    (folder / "labels" / "links.csv").write_text(FOUND_OTHERWISE)
    text = PIPELINE.replace('["en", "de", "fr"]', '["fr", "de"]').replace('roots = ["Q729"]', "")
    text = text.replace("animals and planets", "insects").replace("most_hops = 5", "most_hops = 1")
    (folder / "mine.toml").write_text(text)
    done = run_with(folder, wiki, "run", "mine.toml", "--until", "scrape")
    assert done.returncode == 0, done.stderr
    return folder


def test_ids_categories_and_pages_lead_to_their_items(found_otherwise: Path) -> None:
    linked = table(found_otherwise, "linked.csv")
    assert linked[["name", "item_id", "by"]].to_numpy().tolist() == [
        ["Distelfalter", "Q46360", "page (de)"],
        ["hound", "Q144", "wordnet"],
        ["lady", "Q46360", "commons_url"],  # the topic of the category
        ["nag", "Q726", "wordnet"],
        ["rosa", "Q34687", "gbif"],
    ]
    unlinked = table(found_otherwise, "unlinked.csv")
    assert unlinked[["reason", "detail"]].to_numpy().tolist() == [
        ["gone", "links.csv row 6: 99 does not exist"]
    ]
    assert linked["score"].map(bool).tolist() == [True, False, False, False, False]


def test_values_have_labels_in_the_languages_of_the_names_else_in_english(
    found_otherwise: Path,
) -> None:
    values = set(table(found_otherwise, "instance_of.csv")["instance_of"])
    assert values == {"Rosenartige", "Plantae", "gone"}


def test_the_way_up_ends_after_the_most_hops(found_otherwise: Path) -> None:
    ancestry = table(found_otherwise, "ancestry.csv")
    above = ancestry.groupby("item_id")["above"].agg(list).to_dict()
    assert above == {
        **{key: ["Q14660"] for key in ("Q144", "Q34687", "Q726")},
        **{key: ["Q756"] for key in ("Q46360", "Q14660")},
        "Q756": ["Q19088"],
    }  # "Q19088" is two steps above the value of "rosa"


@pytest.mark.parametrize(
    ("text", "said"),
    [("n02084071", "has the form of ImageNet's, of WordNet 3.0"), ("dog.n.01", "is none")],
)
def test_a_synset_of_another_wordnet_is_refused(
    found_otherwise: Path, wiki: Wiki, text: str, said: str
) -> None:
    path = found_otherwise / "labels" / "links.csv"
    path.write_text(FOUND_OTHERWISE.replace("02086723-n", text))
    done = run_with(found_otherwise, wiki, "link", "mine.toml")
    path.write_text(FOUND_OTHERWISE)
    assert done.returncode == 3
    expected = "expected a synset of WordNet 3.1, such as 02086723-n"
    assert f"links.csv row 2: hound: wordnet '{text}' {said}; {expected}" in done.stderr


def test_a_killed_link_resumes_to_the_same_bytes_and_asks_nothing_twice(
    folder: Path, wiki: Wiki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = int((folder / "requests until link").read_text())
    start, moments = len(wiki.requests()), random.Random(19)
    words = ("run", "mine.toml", "--until", "link", "--work", str(tmp_path))
    for share in (0.2, 0.5, 0.9):
        with Command(with_wiki(wiki, *words), cwd=folder, stderr=subprocess.PIPE) as killed:
            while len(wiki.requests()) - start < share * needed:
                assert killed.poll() is None
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 0.5))  # within a request, or between two
            killed.kill()
    monkeypatch.chdir(folder)
    said = in_process.hgld(*with_wiki(wiki, *words)).err  # this process hashes strings otherwise
    assert "candidates have no scores by photos, since the image encoder is no CLIP" in said
    assert len(wiki.requests()) - start <= needed + 3  # the request of each kill had no answer
    for name in ("linked.csv", "unlinked.csv", "link_review.csv"):
        assert (tmp_path / name).read_bytes() == (folder / "work" / "mine" / name).read_bytes()


def test_link_waits_as_long_as_the_server_asks_to_the_same_bytes(
    folder: Path, wiki: Wiki, tmp_path: Path
) -> None:
    start = len(wiki.requests())
    plan = ["429 2", "ok", "429 date 3", "503 1", "ok", "lag 7"]
    wiki.plan(plan)
    done = run_with(folder, wiki, "run", "mine.toml", "--until", "link", "--work", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1: HTTP 429 (counted as unauthed-bot); attempt 2 in 2 s" in done.stderr
    asked = wiki.requests()[start:]
    assert [line["word"] for line in asked[: len(plan)]] == plan
    assert early_requests(asked) == []
    for name in ("linked.csv", "unlinked.csv", "link_review.csv"):
        assert (tmp_path / name).read_bytes() == (folder / "work" / "mine" / name).read_bytes()


def test_a_long_pause_stops_link_and_the_same_command_resumes_it(
    folder: Path, wiki: Wiki, tmp_path: Path
) -> None:
    needed, start = int((folder / "requests until link").read_text()), len(wiki.requests())
    words = ("run", "mine.toml", "--until", "link", "--work", str(tmp_path))
    wiki.plan(["ok"] * 9 + ["429 3600"])
    stopped = run_with(folder, wiki, *words)
    assert stopped.returncode == 75
    said = stopped.stderr.splitlines()[-1]
    assert "the server asks for a pause of 1 h" in said and "run the same command again" in said
    assert run_with(folder, wiki, *words).returncode == 0
    assert len(wiki.requests()) - start == needed + 1
    linked = (tmp_path / "linked.csv").read_bytes()
    assert linked == (folder / "work" / "mine" / "linked.csv").read_bytes()


def test_a_sheet_of_the_others_is_applied_and_kept(folder: Path, wiki: Wiki) -> None:
    path = folder / "work" / "mine" / "link_review.csv"
    sheet = table(folder, "link_review.csv")
    assert set(sheet["name"]) == {"Saturn", "grey thing", "lost", "\u72d0\u72f8"}
    candidates = dict(zip(sheet["name"], sheet["candidates"], strict=True))
    assert candidates["Saturn"].startswith("Q193 Saturn: planet of the Solar System (0.")
    assert candidates["grey thing"].startswith("Q500 grey thing of the north (")
    decided = sheet["name"].map({"Saturn": "q193", "grey thing": "none"}).fillna("")
    sheet.assign(qid=decided).to_csv(path, index=False, encoding="utf-8-sig")
    done = run_with(folder, wiki, "link", "mine.toml", "--apply")
    assert done.returncode == 0, done.stderr
    kept = pd.read_csv(folder / "labels" / "links.csv", keep_default_na=False)
    new = dict(zip(kept["name"], kept["qid"], strict=True))
    assert len(kept) == 8 and (new["Saturn"], new["grey thing"]) == ("Q193", "none")
    linked = table(folder, "linked.csv")
    assert dict(zip(linked["name"], linked["item_id"], strict=True))["Saturn"] == "Q193"
    assert set(table(folder, "link_review.csv")["name"]) == {"lost", "\u72d0\u72f8"}


@pytest.mark.parametrize(
    ("qid", "said"),
    [("P31", "qid 'P31' is a property, not an item"), ("fox", "qid 'FOX' is not an item")],
)
def test_what_is_no_item_is_refused_with_its_row(
    folder: Path, wiki: Wiki, qid: str, said: str
) -> None:
    path = folder / "labels" / "links.csv"
    before = path.read_text()
    path.write_text(before.replace("nobody,none", f"nobody,{qid}"))
    done = run_with(folder, wiki, "link", "mine.toml")
    path.write_text(before)
    assert done.returncode == 3
    assert f"links.csv row 6: nobody: {said}; expected one such as Q35694" in done.stderr


@pytest.mark.parametrize("content", [None, b"\xff\x00 not what it was"], ids=["gone", "damaged"])
@pytest.mark.parametrize("name", ["linked", "unlinked", "link_review", "ancestry"])
def test_a_lost_table_is_made_again_or_named_in_one_line(
    folder: Path, wiki: Wiki, name: str, content: bytes | None
) -> None:
    path = folder / "work" / "mine" / ARTIFACTS[name].file
    before = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    done = run_with(folder, wiki, "run", "mine.toml", "--until", "clean")
    after = path.read_bytes()
    path.write_bytes(before)
    if done.returncode == 0:
        assert after == before
    else:
        assert content is not None and path.name in done.stderr.splitlines()[-1]


def test_a_dump_leads_to_the_same_items_without_a_request(
    folder: Path, wiki: Wiki, tmp_path: Path
) -> None:
    entities = made_world().entities
    dump = write_dumps({"pages": {"x": {}}, "redirects": {}, "entities": entities}, tmp_path)
    dumped = ("--work", str(tmp_path), "--set", f"scrape.dump_entities={dump['entities']}")
    asked = len(wiki.requests())
    done = run_with(folder, wiki, "run", "mine.toml", *dumped, "--until", "clean")
    assert done.returncode == 0, done.stderr
    assert len(wiki.requests()) == asked
    columns = ["name", "item_id", "label", "description", "by"]
    here = pd.read_csv(tmp_path / "linked.csv", keep_default_na=False)[columns]
    there = table(folder, "linked.csv")[columns]
    # A dump has no redirects: "old wolf" names an item that was merged.
    assert here.to_numpy().tolist() == there[there["name"] != "old wolf"].to_numpy().tolist()
    assert set(pd.read_csv(tmp_path / "unlinked.csv").query("reason == 'gone'")["detail"]) == {
        f"links.csv row {row}: {qid} does not exist in the dump; if the item was merged, give the "
        "id of the one that it was merged into: dumps hold no merged items"
        for row, qid in ((2, "Q9"), (4, "Q404"))
    }
    assert "Vulpes" in set(pd.read_csv(tmp_path / "values.csv")["instance_of"])


def test_a_csv_of_labels_says_what_classes_are_unless_links_does(
    folder: Path, tmp_path: Path
) -> None:
    rows = ["1.jpg,jaguar,Q30055,", "2.jpg,jaguar,Q30055,", "3.jpg,lost,Q308,", "4.jpg,comet,Q1,"]
    (tmp_path / "labels.csv").write_text("\n".join(["path,name,qid,gbif", *rows, ""]))
    done = from_table(folder, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "labels.csv: 1 of 3 rows names no class, first 'comet' in row 5" in done.stderr
    linked = pd.read_csv(tmp_path / "linked.csv").set_index("name")
    assert linked.loc["jaguar", ["item_id", "by"]].tolist() == ["Q30055", "qid"]
    assert "lost" not in linked.index  # links.csv names another item, which is gone


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,qid\nSaturn,Q1\nlost,P31\n", "labels.csv row 3: lost: qid 'P31' is a property"),
        ("name,qid\nSaturn,Q1\nSaturn,Q2\n", "labels.csv row 3: name 'Saturn' has another qid"),
        ("name,id\nSaturn,Q1\n", "labels.csv: no column qid, wikipedia, commons_url, wordnet or"),
    ],
)
def test_a_csv_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "labels.csv").write_text(text)
    done = from_table(folder, tmp_path)
    assert done.returncode == 3 and said in done.stderr


def from_table(folder: Path, work: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Link the classes by the CSV of a work folder and a dump, without requests."""
    entities = made_world().entities
    dump = write_dumps({"pages": {"x": {}}, "redirects": {}, "entities": entities}, work)
    settings = [
        f"scrape.dump_entities={dump['entities']}",
        f"link.table={work / 'labels.csv'}",
        *more,
    ]
    words = ["run", "mine.toml", "--until", "link", "--work", str(work)]
    words = [*words, *(part for setting in settings for part in ("--set", setting))]
    return hgld(folder, *words)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with classes whose items have several statements of two properties."""
    folder, world = tmp_path_factory.mktemp("several"), World()
    kind, ranked = {"prop": "P279"}, {"rank": "deprecated"}
    names = {"Q10": "vehicle", "Q20": "dish", "Q30": "food", "Q40": "Wikimedia category"}
    for item_id, label in names.items():
        add(world, item_id, en=label)
    add(world, "Q1", is_a("Q20"), is_a("Q20", **kind), is_a("Q30", **kind), en="pie")
    add(world, "Q2", is_a("Q10", **ranked), is_a("Q30"), is_a("Q20", rank="preferred"), en="stew")
    add(world, "Q3", is_a("Q40"), is_a("Q10", **kind), en="cart")
    add(world, "Q4", is_a("Q20", **ranked), en="bun")
    write_dumps({"pages": {"x": {}}, "redirects": {}, "entities": world.entities}, folder)
    for name in ("pie", "stew", "cart", "bun"):
        (make(folder / "photos" / name) / "1.jpg").write_bytes(b"jpeg")
    (make(folder / "labels") / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    text = PIPELINE.replace('["P279", "P171"]', '["P31", "P279"]').replace('roots = ["Q729"]', "")
    (folder / "mine.toml").write_text(text.replace("animals and planets", ""))
    return folder


@pytest.mark.parametrize(
    ("policy", "values", "dropped"),
    [
        ("first-best", {"pie": "dish", "stew": "dish", "cart": "vehicle", "bun": "bun"}, {}),
        ("all", {"pie": "dish; food", "stew": "dish", "cart": "vehicle", "bun": "bun"}, {}),
        ("single-only", {"stew": "dish", "bun": "bun"},
         {"pie": "several_values", "cart": "several_values"}),
    ],
)  # fmt: skip
def test_a_policy_chooses_among_the_statements_of_an_item(
    several: Path, policy: str, values: dict[str, str], dropped: dict[str, str]
) -> None:
    words = ["--set", "scrape.dump_entities=all.json", "--set", f"clean.policy={policy}"]
    hgld(several, "run", "mine.toml", "--until", "clean", *words, code=0)
    names = table(several, "landmarks.csv")[["landmark_id", "name"]]
    found = table(several, "landmark_values.csv").merge(names).sort_values(["name", "order"])
    assert found.groupby("name")["instance_of"].agg("; ".join).to_dict() == values
    lost = table(several, "clean_dropped.csv").merge(names)
    assert dict(zip(lost["name"], lost["reason"], strict=True)) == dropped


def test_an_answer_that_is_no_item_is_refused_with_its_row(tmp_path: Path) -> None:
    answers = {"fox": "P31", "cat": "none", "dog": "a dog"}
    rows = list(enumerate(({"name": name, "qid": qid} for name, qid in answers.items()), 2))
    with pytest.raises(InvalidData) as error:
        apply_links(rows, table_of("links", []), who="", when="", path=tmp_path / "sheet.csv")
    assert "sheet.csv row 2: fox: qid 'P31' is a property" in str(error.value)
    assert "row 4: dog: qid 'A DOG' is not an item" in str(error.value)


def test_a_note_that_follows_its_answer_is_added(tmp_path: Path) -> None:
    links, row = table_of("links", []), {"name": "fox", "qid": "Q8332", "note": ""}
    for note in ("", "by its tail", "by its tail", ""):
        said = [(2, {**row, "note": note})]
        links = apply_links(said, links, who="Ann", when="", path=tmp_path / "sheet.csv")
    assert links[["qid", "why"]].to_numpy().tolist() == [["Q8332", ""], ["Q8332", "by its tail"]]


def test_an_answer_without_a_name_is_not_added(tmp_path: Path) -> None:
    rows = [(2, {"name": "", "qid": "Q8332"})]
    with pytest.raises(InvalidData, match=r"sheet\.csv row 2: no name; write the name of a class"):
        apply_links(rows, table_of("links", []), who="", when="", path=tmp_path / "sheet.csv")


class NothingFound:
    """Look-ups and items of a Wikidata that has none."""

    def learn(self, keys: Iterable[str], /) -> dict[str, Any]:
        return {key: LookUp([]) for key in keys}


ITEMS = {
    item_id: NamedItem(item_id, labels={"en": label}, descriptions={"en": about} if about else {})
    for item_id, label, about in (
        ("Q26742231", "Apple", "American multinational technology company"),
        ("Q12897", "puma", "species of mammal, a wild cat"),
        ("Q1", "Rover", ""),
        ("Q193", "Saturn", "planet"),
        ("Q1939", "Saturn", "planet"),
        ("Q35694", "Jaguar", "species of big cat, a wild animal"),
        ("Q30055", "Jaguar", "British manufacturer of cars, a company"),
    )
}


class Search:
    """Look-ups by name in ``ITEMS``."""

    def learn(self, keys: Iterable[str], /) -> dict[str, LookUp]:
        name_of = {key: key.split(PARTS)[2] for key in keys}
        return {
            key: LookUp([i for i, item in ITEMS.items() if item.labels["en"] == name])
            for key, name in name_of.items()
        }


class Items:
    """The items of ``ITEMS``."""

    def learn(self, keys: Iterable[str], /) -> dict[str, NamedItem]:
        return {key: ITEMS[key] for key in keys}


@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        ("Saturn", 0.25, 0.29, ("Q1939", "name (en), photos", "")),  # P = 0.98
        ("Saturn", 0.25, 0.26, ("", "", "ambiguous")),  # P = 0.73
        ("Jaguar", 0.25, 0.26, ("Q35694", "name (en)", "")),  # as the topic is animals
        ("Jaguar", 0.29, 0.25, ("Q35694", "name (en), photos", "")),
        ("Jaguar", 0.25, 0.29, ("", "", "ambiguous")),  # photos of cars
    ],
)
def test_photos_choose_among_items_of_one_name_unless_texts_choose_another(
    name: str, first: float, second: float, expected: tuple[str, str, str]
) -> None:
    ids = [item_id for item_id, item in ITEMS.items() if item.labels["en"] == name]
    seen = {(name, ids[0]): first, (name, ids[1]): second}
    options, encoder = LinkOptions(about="animals"), EmbedOptions(encoder="offline:minilm")
    link = Linker(Search(), Items(), options, encoder, lambda texts: seen).link([name], {})[name]
    assert (link.item.item_id, link.by, link.reason) == expected
    if link.reason:
        assert link.photo_scores == f"{ids[0]} ({first:.3f}); {ids[1]} ({second:.3f})"


@pytest.mark.parametrize(
    ("name", "about", "expected"),
    [
        ("Apple", "fruit", ("", "", "off_topic")),
        ("Apple", "companies", ("Q26742231", "name (en)", "")),
        ("Apple", "", ("Q26742231", "name (en)", "")),
        ("puma", "animals", ("Q12897", "name (en)", "")),
        ("Rover", "animals", ("Q1", "name (en)", "")),  # no description contradicts
    ],
)
def test_a_single_item_is_linked_unless_its_description_is_off_the_topic(
    name: str, about: str, expected: tuple[str, str, str]
) -> None:
    options, encoder = LinkOptions(about=about), EmbedOptions(encoder="offline:minilm")
    link = Linker(Search(), Items(), options, encoder).link([name], {})[name]
    assert (link.item.item_id, link.by, link.reason) == expected
    assert re.fullmatch(r"0\.\d{3}|1\.000", link.score) if link.item.item_id else not link.score
    assert link.item.item_id or link.candidates.startswith("Q26742231 Apple: American multi")


def test_a_topic_of_a_category_that_a_dump_lacks_is_what_does_not_exist(tmp_path: Path) -> None:
    items = DumpedItems(tmp_path / "dump.json", ["en"], ["enwiki"], ["P31", "P301"])
    of_category = ("P31", "Q4167836", ""), ("P301", "Q5", "")
    items.known = {"Q4": NamedItem("Q4", statements=of_category), "Q5": NamedItem("")}
    said = {"lake": Said("qid", "Q4", "Q4", "", "links.csv row 2")}
    linker = Linker(Search(), items, LinkOptions(), EmbedOptions(encoder="offline:minilm"))
    link = linker.link(["lake"], said)["lake"]
    assert (link.reason, link.detail) == (
        "gone",
        "links.csv row 2: Q4: its topic Q5 (P301) does not exist in the dump; if the item was "
        "merged, give the id of the one that it was merged into: dumps hold no merged items",
    )


@pytest.mark.parametrize(("seen", "reason"), [(0.29, ""), (0.25, "off_topic")])
def test_photos_may_contradict_a_single_item(seen: float, reason: str) -> None:
    def look(texts: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], float]:
        assert texts["puma"]["Q12897"] == "puma: species of mammal, a wild cat"
        assert texts["puma"]["2011 film"] == "puma: 2011 film"
        return {("puma", key): seen if key == "Q12897" else 0.27 for key in texts["puma"]}

    encoder = EmbedOptions(encoder="offline:minilm")
    link = Linker(Search(), Items(), LinkOptions(), encoder, look).link(["puma"], {})["puma"]
    assert (link.reason, link.photo_score) == (reason, "" if reason else "0.290")


MERCURY = {
    "Q308": "A picture of a Mercury: planet of the Solar System",
    "Q925": "A picture of a mercury: chemical element with symbol Hg, a metal",
    "Q1150": "A picture of a Mercury: Roman god of commerce",
}


def photo_cosines(clip: Path, photos: Path, texts: Mapping[str, str]) -> dict[str, float]:
    """Cosine of the mean of the photos' unit vectors and each text's, by open_clip alone."""
    name = f"local-dir:{clip}"
    model, prepare = open_clip.create_model_from_pretrained(name)
    images = torch.stack([prepare(Image.open(path)) for path in sorted(photos.iterdir())])
    tokens = open_clip.get_tokenizer(name)([*texts.values()])
    with torch.inference_mode():
        mean = F.normalize(model.eval().encode_image(images), dim=-1).mean(0)
        cosines = F.normalize(model.encode_text(tokens), dim=-1) @ F.normalize(mean, dim=0)
    return dict(zip(texts, cosines.tolist(), strict=True))


def test_a_clip_compares_photos_with_candidates(tmp_path: Path) -> None:
    save_clip(make(tmp_path / "clip"))
    for name in ("Saturn", "nothing", "007", "Mercury"):
        Image.new("RGB", (40, 40), "red").save(make(tmp_path / "photos" / name) / "1.png")
    Image.radial_gradient("L").convert("RGB").save(tmp_path / "photos" / "Mercury" / "2.png")
    (make(tmp_path / "labels") / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    (tmp_path / "mine.toml").write_text(PIPELINE.replace("offline:minilm", "local-dir:clip"))
    (tmp_path / "labels.csv").write_text("name,qid\n")
    settings = ["embed.device=cpu", "link.margin=2", "link.sure=1"]  # all names stay ambiguous
    done = from_table(tmp_path, tmp_path, *settings)
    assert done.returncode == 0, done.stderr
    sheet = pd.read_csv(tmp_path / "link_review.csv", keep_default_na=False).set_index("name")
    assert re.fullmatch(r"Q193\d* \(-?0\.\d{3}\); Q193\d* .*", sheet.loc["Saturn", "photo_scores"])
    seen = dict(re.findall(r"(Q\d+) \((-?0\.\d{3})\)", sheet.loc["Mercury", "photo_scores"]))
    cosines = photo_cosines(tmp_path / "clip", tmp_path / "photos" / "Mercury", MERCURY)
    assert len({f"{cosine:.3f}" for cosine in cosines.values()}) == len(MERCURY)
    assert {key: float(text) for key, text in seen.items()} == pytest.approx(cosines, abs=6e-4)
    assert sheet.loc["nothing", "photo_scores"] == ""
    assert "'007" in sheet.index  # a spreadsheet would make 7 of it
    pipeline = load_pipeline(tmp_path / "mine.toml", ['export.licenses=["*", "unknown"]'])
    runner = Runner(Workspace(tmp_path / "mine.toml", pipeline, tmp_path), "", Notes())
    assert set(link_photos(runner)["key"]) == {"Saturn", "nothing", "007", "Mercury"}
    sheet.reset_index().assign(qid="none").to_csv(tmp_path / "link_review.csv", index=False)
    again = from_table(tmp_path, tmp_path, *settings)
    assert "edits that are not applied; run `hgld link mine.toml --work" in again.stderr


def test_an_answer_of_a_name_with_joined_blanks_is_taken_back(tmp_path: Path) -> None:
    links = table_of("links", [{"name": "red fox", "qid": "none"}])
    rows = [(2, {"name": "red  fox", "qid": "open"})]
    given = {"who": "Ann", "when": "", "path": tmp_path / "sheet.csv"}
    assert apply_links(rows, links, **given)["qid"].tolist() == ["none", ""]


def test_blanks_of_a_name_count_as_one(tmp_path: Path) -> None:
    make(tmp_path / "labels")
    (tmp_path / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    (tmp_path / "labels" / "links.csv").write_text("name,qid\nred fox,Q8332\n")
    for name in ("red  fox", "big   cat"):
        Image.new("RGB", (8, 8), "red").save(make(tmp_path / "photos" / name) / "1.png")
    (tmp_path / "mine.toml").write_text(PIPELINE)
    (tmp_path / "labels.csv").write_text("name,qid\nbig cat,Q35694\n")
    done = from_table(tmp_path, tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(tmp_path / "linked.csv")["item_id"]) == {"Q8332", "Q35694"}


def make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_class_without_a_name_is_not_looked_up_and_not_in_the_sheet() -> None:
    linker = Linker(NothingFound(), NothingFound(), LinkOptions(), EmbedOptions())
    found = linker.link(["", "_", "\u72d0"], {})
    assert [found[name].reason for name in found] == ["no_name", "no_name", "not_found"]
    assert found["\u72d0"].detail == "no item of that name in en"


def test_a_person_may_link_a_class_whose_name_is_no_word() -> None:
    said = {"_": Said("qid", "Q193", "Q193", "", "links.csv row 2")}
    linker = Linker(NothingFound(), Items(), LinkOptions(), EmbedOptions())
    assert linker.link(["_"], said)["_"].item.item_id == "Q193"
