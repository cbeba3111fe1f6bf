"""Hints from Wikidata's classes, asked from the made world's server and worked out by hand."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import Json, columns_of, declared_table, table_of
from hgld.config import HintOptions, ScrapeOptions, SourceOptions, StageContext, ToyOptions
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.hints import Root, hint_classes, hint_nothing, hints_above
from hgld.hierarchy.scrape.stand_in import stand_in
from hgld.hierarchy.scrape.subclasses import SuperClasses, read_superclasses, walk_up
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import CLASSES, imagine
from tests.hierarchy.small_wiki import Wiki, serve
from tests.listening import heard

LABELS = Path(__file__).parents[2] / "labels"
LAKE = Root("Q5", "lake", "natural", "lake")
WATER = Root("Q6", "water", "natural", "")
BUILT = Root("Q7", "built", "human-made", "")
TOP = Root("Q9", "entity", "", "")


def label_file(name: str, labels: str = "toy") -> pd.DataFrame:
    artifact = declared_table(name)
    return artifact.read(LABELS / labels / artifact.file)


def graph(**above: str) -> dict[str, SuperClasses]:
    return {one: SuperClasses(one, 1, ups.split()) for one, ups in above.items()}


def hint(known: dict[str, SuperClasses], *roots: Root, most_hops: int = 8) -> dict[str, Any] | None:
    rows = hints_above({"Q1": "pond"}, known, roots, most_hops)
    return rows[0] if rows else None


def test_the_nearest_root_gives_kind_and_supercategory() -> None:
    found = hint(graph(Q1="Q2 Q7x", Q2="Q5", Q7x="Q3", Q3="Q7"), LAKE, BUILT)
    assert found == {
        "class_id": "Q1", "instance_of": "pond", "kind_hint": "natural",
        "supercategory_hint": "lake", "root": "lake (2); built (3)", "hops": 2,
    }  # fmt: skip


def test_a_tie_between_the_kinds_is_a_question() -> None:
    found = hint(graph(Q1="Q5 Q7"), LAKE, BUILT)
    assert found is not None
    assert (found["kind_hint"], found["supercategory_hint"]) == ("ask", "")
    assert found["root"] == "built (1); lake (1)"


def test_a_supercategory_may_stand_farther_up_than_the_kind() -> None:
    found = hint(graph(Q1="Q6 Q2", Q2="Q5"), LAKE, WATER)
    assert found is not None
    assert (found["hops"], found["root"]) == (1, "water (1)")
    assert found["supercategory_hint"] == "lake"


def test_two_supercategories_equally_near_are_none() -> None:
    river = Root("Q8", "river", "natural", "river")
    found = hint(graph(Q1="Q5 Q8"), LAKE, river)
    assert found is not None and found["supercategory_hint"] == ""


def test_without_kinds_the_nearest_root_gives_the_supercategory(context: StageContext) -> None:
    lake = replace(LAKE, kind="")  # of data with one level above the classes
    found = hint(graph(Q1="Q5 Q9"), lake, TOP)
    assert found is not None
    assert (found["kind_hint"], found["supercategory_hint"]) == ("", "lake")
    assert found["root"] == "lake (1)"
    taxonomy = table_of("taxonomy", [{"supercategory": "lake", "kind": "", "definition": ""}])
    roots = table_of("class_roots", [asdict(lake), asdict(TOP)])
    hint_nothing(table_of("values", []), taxonomy, roots, options=HintOptions(), context=context)


def test_the_way_does_not_go_on_above_a_root() -> None:
    known = graph(Q1="Q9", Q9="Q7")
    assert hint(known, BUILT, TOP) is None
    assert hint(known, BUILT) is not None


def test_circles_end_and_ways_that_are_too_long_count_for_nothing() -> None:
    known = graph(Q1="Q1 Q2", Q2="Q3", Q3="Q2 Q5")
    assert hint(known, LAKE, most_hops=3) is not None
    assert hint(known, LAKE, most_hops=2) is None


def test_a_class_that_is_a_root_is_no_hop_away() -> None:
    found = hint(graph(Q1="Q7"), Root("Q1", "pond", "natural", "lake"), BUILT)
    assert found is not None and (found["hops"], found["supercategory_hint"]) == (0, "lake")


def test_each_class_is_asked_for_once_and_none_above_an_end() -> None:
    known = graph(Q1="Q3", Q2="Q3", Q3="Q1 Q5", Q5="Q8", Q8="")
    asked: list[str] = []

    def learn(ids: Any) -> dict[str, SuperClasses]:
        asked.extend(sorted(ids))
        return {one: known[one] for one in ids}

    assert set(walk_up(["Q1", "Q2"], {"Q5"}, 8, learn)) == {"Q1", "Q2", "Q3", "Q5"}
    assert asked == ["Q1", "Q2", "Q3", "Q5"]


def test_the_best_rank_counts_and_a_gone_class_has_none_above_it() -> None:
    def claim(up: str, rank: str) -> dict[str, Any]:
        value = {"entity-type": "item", "id": up}
        snak = {"snaktype": "value", "property": "P279", "datavalue": {"value": value}}
        return {"mainsnak": snak, "rank": rank}

    entity = {
        "type": "item", "id": "Q1", "lastrevid": 7,
        "labels": {"en": {"language": "en", "value": "salt  lake"}},
        "claims": {"P279": [claim("Q2", "normal"), claim("Q3", "preferred")]},
    }  # fmt: skip
    gone = {"id": "Q4", "missing": ""}
    document = {"entities": {"Q1": entity, "Q4": gone, "Q5": {"type": "item", "id": "Q5"}}}
    assert read_superclasses(document, ["Q1", "Q4", "Q5", "Q6"]) == {
        "Q1": SuperClasses("salt lake", 7, ("Q3",)),
        "Q4": SuperClasses("Q4", 0, ()),
    }


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[StageContext]:
    Json("wiki.json").write(describe_wiki(imagine(ToyOptions(landmarks=6))), tmp_path / "wiki.json")
    with stand_in(tmp_path) as (commons, wikidata):
        scrape = ScrapeOptions(
            commons_api=commons, wikidata_api=wikidata, contact="a@example.org", stand_in=True
        )
        yield StageContext(
            "2026-11-21", tmp_path / "state", SourceOptions(), LABELS / "toy", scrape
        )


def values_of(*class_ids: str) -> pd.DataFrame:
    labels = {c.class_id: c.label for c in CLASSES} | {"Q570116": "tourist attraction", "": "pub"}
    rows = [
        {"class_id": one, "instance_of": labels[one], "landmarks": 1, "images": 1}
        for one in class_ids
    ]
    return table_of("values", rows)


def ask_toy(context: StageContext, *class_ids: str, **more: Any) -> list[list[Any]]:
    taxonomy, roots = label_file("taxonomy"), label_file("class_roots")
    roots = roots.assign(**more) if more else roots
    hints, upper, _ = hint_classes(
        values_of(*class_ids), taxonomy, roots, options=HintOptions(), context=context
    )
    assert list(hints.columns) == columns_of("class_hints")
    assert list(upper.columns) == columns_of("superclasses")
    return hints[["class_id", "kind_hint", "supercategory_hint", "hops"]].to_numpy().tolist()


def test_the_made_world_hints_at_what_its_classes_are(toy: StageContext) -> None:
    assert ask_toy(toy, "Q108325", "Q54050", "Q131681", "Q570116", "") == [
        ["Q108325", "human-made", "church", 1],  # a chapel is a kind of church building
        ["Q131681", "ask", "", 1],  # a reservoir is water, and built
        ["Q54050", "natural", "", 1],
    ]


def test_what_was_learnt_is_not_asked_again(toy: StageContext) -> None:
    first = ask_toy(toy, "Q108325", "Q54050")
    nowhere = toy.scrape.model_copy(update={"wikidata_api": "http://127.0.0.1:9/w/api.php"})
    again = StageContext(toy.now, toy.state, toy.source, toy.labels, nowhere)
    assert ask_toy(again, "Q108325", "Q54050") == first


def test_a_damaged_cache_is_asked_for_again(toy: StageContext) -> None:
    first = ask_toy(toy, "Q108325")
    (toy.state / "superclasses.json").write_text('{"server": "stand-in", "classes": {"Q1"')
    assert ask_toy(toy, "Q108325") == first


def test_a_changed_id_in_the_cache_is_noticed(toy: StageContext) -> None:
    first, path = ask_toy(toy, "Q108325"), toy.state / "superclasses.json"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"above": ["Q', '"above": ["Q1', 1), "utf-8")
    assert path.read_text("utf-8") != text
    assert ask_toy(toy, "Q108325") == first
    assert path.read_text("utf-8") == text


def test_a_batch_that_was_cut_off_is_asked_for_again_and_the_others_are_kept(
    toy: StageContext,
) -> None:
    first, path = ask_toy(toy, "Q108325"), toy.state / "superclasses.json"
    lines = path.read_text("utf-8").split("\n")
    assert len(lines) == 2
    path.write_text("\n".join(lines)[:-5], "utf-8")
    nowhere = toy.scrape.model_copy(update={"wikidata_api": "http://127.0.0.1:9/w/api.php"})
    assert ask_toy(toy, "Q108325") == first
    assert path.read_text("utf-8").split("\n") == lines
    again = StageContext(toy.now, toy.state, toy.source, toy.labels, nowhere)
    assert ask_toy(again, "Q108325") == first


def test_a_root_of_another_name_is_left_out_and_that_is_said(toy: StageContext) -> None:
    roots = label_file("class_roots")
    labels = roots["label"].where(roots["class_id"] != "Q16970", "church")
    with heard() as notes:
        assert ask_toy(toy, "Q108325", label=labels) == [["Q108325", "human-made", "", 2]]
    assert any("Q16970 is 'church building' in Wikidata, but 'church'" in n for n in notes)


def test_many_roots_of_other_names_are_one_note_with_their_number(toy: StageContext) -> None:
    count = len(label_file("class_roots"))
    with heard() as notes:
        assert ask_toy(toy, "Q108325", label=[f"old {i}" for i in range(count)]) == []
    about = [note for note in notes if "another label" in note]
    assert len(about) == 1 and f"class_roots.csv: {count} classes with no hints" in about[0]
    assert about[0].endswith(f"and {count - 3} more")


def test_nothing_is_asked_where_no_value_has_an_id(context: StageContext) -> None:
    assert ask_toy(context, "") == []


def test_other_sources_give_no_hints_without_a_contact(context: StageContext) -> None:
    tables = values_of("Q108325"), label_file("taxonomy"), label_file("class_roots")
    with heard() as notes:
        found = hint_nothing(*tables, options=HintOptions(), context=context)
    assert all(table.empty for table in found)
    assert notes == ["no hints: Wikidata is not asked without scrape.contact"]


def test_hints_can_be_turned_off(context: StageContext) -> None:
    taxonomy, roots = label_file("taxonomy"), label_file("class_roots")
    options = HintOptions(ask=False)
    hints, _, _ = hint_classes(
        values_of("Q8502"), taxonomy, roots, options=options, context=context
    )
    assert hints.empty


def test_a_contact_is_needed_as_soon_as_something_is_asked(context: StageContext) -> None:
    with pytest.raises(UsageError, match=r"scrape\.contact is ''"):
        ask_toy(context, "Q108325")


def test_roots_that_do_not_fit_the_taxonomy_are_told_all_at_once(context: StageContext) -> None:
    roots = table_of("class_roots", [
        {"class_id": "Q1", "label": "x", "kind": "natural", "supercategory": "lakes"},
        {"class_id": "Q2", "label": "y", "kind": "natural", "supercategory": "bridge"},
    ])  # fmt: skip
    with pytest.raises(
        InvalidData, match=r"(?s)row 2: .*did you mean 'lake'.*row 3: kind of 'bridge'"
    ):
        hint_classes(values_of("Q8502"), label_file("taxonomy"), roots,
                     options=HintOptions(), context=context)  # fmt: skip


def test_a_root_is_named_by_its_row_in_a_file_with_blank_lines(
    context: StageContext, tmp_path: Path
) -> None:
    header = "class_id,label,kind,supercategory"
    (tmp_path / "class_roots.csv").write_text(f"{header}\n\nQ1,x,natural,lakes\n")
    roots = declared_table("class_roots").read(tmp_path / "class_roots.csv")
    with pytest.raises(InvalidData, match=r"class_roots\.csv row 3: "):
        hint_classes(values_of("Q8502"), label_file("taxonomy"), roots, options=HintOptions(),
                     context=replace(context, labels=tmp_path))  # fmt: skip


@pytest.mark.parametrize("labels", ["toy", "gldv2"])
def test_the_shipped_roots_fit_their_taxonomy(labels: str, context: StageContext) -> None:
    taxonomy, roots = label_file("taxonomy", labels), label_file("class_roots", labels)
    assert len(roots) > 10
    hints, _, _ = hint_classes(
        values_of(""), taxonomy, roots, options=HintOptions(), context=context
    )
    assert hints.empty


def ask_labels_of(wiki: Wiki, state: Path, *languages: str) -> dict[tuple[str, str], str]:
    scrape = ScrapeOptions(commons_api=wiki.url, wikidata_api=wiki.url, contact="a@example.org")
    context = StageContext("2026-11-21", state, SourceOptions(), LABELS / "toy", scrape)
    options = HintOptions(languages=languages)
    none = table_of("class_roots", [])
    *_, labels = hint_classes(
        values_of("Q108325", "Q54050"),
        label_file("taxonomy"),
        none,
        options=options,
        context=context,
    )
    rows = zip(labels["class_id"], labels["language"], labels["label"], strict=True)
    return {(class_id, language): label for class_id, language, label in rows}


def test_labels_in_other_languages_are_asked_once_and_a_missing_one_stays_empty(
    tmp_path: Path,
) -> None:
    wiki = Wiki()
    with serve(wiki):
        wiki.label("Q108325", "Kapelle", "de")
        wiki.label("Q54050", "Hügel ", "mul")
        found = ask_labels_of(wiki, tmp_path, "de", "fr")
        assert found == {
            ("Q108325", "de"): "Kapelle", ("Q54050", "de"): "Hügel", ("Q54050", "fr"): "Hügel",
        }  # fmt: skip
        (question,) = wiki.asked
        assert question["languages"] == "de|fr|mul" and "languagefallback" not in question
        assert ask_labels_of(wiki, tmp_path, "de", "fr") == found
        assert len(wiki.asked) == 1
        ask_labels_of(wiki, tmp_path, "de")  # other languages are another question
        assert len(wiki.asked) == 2


def test_without_languages_or_roots_nothing_is_asked(tmp_path: Path) -> None:
    wiki = Wiki()
    with serve(wiki):
        assert ask_labels_of(wiki, tmp_path) == {}
        assert wiki.asked == []
