from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, table_of
from hgld.config import CleanOptions, SourceOptions, StageContext
from hgld.hierarchy.clean import clean_values
from tests.listening import heard

Rows = list[list[Any]]


def statements(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Rows of (landmark_id, class_id, instance_of[, rank[, split]])."""
    cells = [
        (*row, "normal", "train")[:5] if len(row) == 3 else (*row, "train")[:5] for row in rows
    ]
    return table_of(
        "instance_of",
        [
            {
                "split": split,
                "landmark_id": landmark_id,
                "item_id": "Q1",
                "revision": 1,
                "order": order,
                "class_id": class_id,
                "instance_of": label,
                "rank": rank,
                "qualifiers": "{}",
            }
            for order, (landmark_id, class_id, label, rank, split) in enumerate(cells)
        ],
    )


def images(*rows: tuple[str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["split", "landmark_id"])


def clean(
    table: pd.DataFrame,
    context: StageContext,
    policy: str = "first-best",
    pictures: pd.DataFrame | None = None,
    **more: Any,
) -> tuple[Rows, Rows, Rows]:
    """Values, (landmark, value), (landmark, reason, detail) as plain lists."""
    options = CleanOptions.model_validate({"policy": policy, **more})
    pictures = images() if pictures is None else pictures
    landmarks = table[["split", "landmark_id"]].drop_duplicates()
    values, chosen, dropped = clean_values(
        landmarks, pictures, table, options=options, context=context
    )
    assert list(values.columns) == columns_of("values")
    assert list(chosen.columns) == columns_of("landmark_values")
    assert list(dropped.columns) == columns_of("clean_dropped")
    return (
        values.to_numpy().tolist(),
        chosen[["landmark_id", "instance_of"]].to_numpy().tolist(),
        dropped[["landmark_id", "reason", "detail"]].to_numpy().tolist(),
    )


TWO = statements((1, "Q2", "castle"), (1, "Q3", "museum"), (2, "Q3", "museum"))


def test_first_best_takes_the_first_statement(context: StageContext) -> None:
    assert clean(TWO, context) == (
        [["Q2", "castle", 1, 0], ["Q3", "museum", 1, 0]],
        [[1, "castle"], [2, "museum"]],
        [],
    )


def test_single_only_drops_landmarks_of_several_values(context: StageContext) -> None:
    _, chosen, dropped = clean(TWO, context, "single-only")
    assert chosen == [[2, "museum"]]
    assert dropped == [[1, "several_values", "castle; museum"]]


def test_all_keeps_every_value(context: StageContext) -> None:
    values, chosen, _ = clean(TWO, context, "all")
    assert values == [["Q2", "castle", 1, 0], ["Q3", "museum", 2, 0]]
    assert chosen == [[1, "castle"], [1, "museum"], [2, "museum"]]


@pytest.mark.parametrize("policy", ["first-best", "single-only", "all"])
def test_preferred_statements_put_normal_ones_aside(policy: str, context: StageContext) -> None:
    table = statements((1, "Q2", "city", "normal"), (1, "Q3", "state", "preferred"))
    assert clean(table, context, policy)[1] == [[1, "state"]]


@pytest.mark.parametrize("policy", ["first-best", "single-only", "all"])
def test_deprecated_statements_never_count(policy: str, context: StageContext) -> None:
    table = statements((1, "Q2", "city", "deprecated"), (1, "Q3", "town", "normal"))
    assert clean(table, context, policy)[1:] == ([[1, "town"]], [])
    only = statements((1, "Q2", "city", "deprecated"))
    assert clean(only, context, policy) == ([], [], [[1, "only_deprecated", "city"]])


def test_irrelevant_values_are_known_by_id_and_by_label(context: StageContext) -> None:
    table = statements(
        (1, "Q4167836", "whatever"), (2, "", "wikimedia  Category"), (3, "Q4167836", "x"),
        (3, "Q2", "castle"),
    )  # fmt: skip
    _, chosen, dropped = clean(table, context)
    assert chosen == [[3, "castle"]]
    assert dropped == [
        [1, "only_irrelevant", "whatever"],
        [2, "only_irrelevant", "wikimedia Category"],
    ]


def test_what_is_irrelevant_is_an_option(context: StageContext) -> None:
    table = statements((1, "", "organization"))
    assert clean(table, context)[1] == [[1, "organization"]]
    more = {"irrelevant_labels": ["organization"]}
    assert clean(table, context, **more)[2] == [[1, "only_irrelevant", "organization"]]


def test_single_only_counts_an_irrelevant_value_as_one_of_several(context: StageContext) -> None:
    table = statements((1, "Q4167836", "Wikimedia category"), (1, "Q2", "castle"))
    assert clean(table, context, "single-only")[2] == [[1, "several_values", "castle"]]


def test_the_same_value_twice_is_one_value(context: StageContext) -> None:
    table = statements((1, "Q2", "castle"), (1, "Q2", "castle"))
    assert clean(table, context, "single-only")[0] == [["Q2", "castle", 1, 0]]
    assert clean(table, context, "all")[1] == [[1, "castle"]]


def test_blanks_make_no_new_values(context: StageContext) -> None:
    table = statements((1, "", "urban  park"), (2, "", "\u00a0urban park "))
    assert clean(table, context)[0] == [["", "urban park", 2, 0]]


def test_a_class_with_two_labels_is_one_value(context: StageContext) -> None:
    table = statements((1, "Q2", "pub"), (2, "Q2", "inn"), (3, "Q2", ""))
    assert clean(table, context)[0] == [["Q2", "inn", 3, 0]]


def test_two_classes_with_one_label_stay_two_values(context: StageContext) -> None:
    table = statements((1, "Q2", "bay"), (2, "Q3", "bay"))
    assert clean(table, context)[0] == [["Q2", "bay", 1, 0], ["Q3", "bay", 1, 0]]


def test_images_count_in_the_id_space_of_their_split(context: StageContext) -> None:
    table = statements((1, "", "lake"), (1, "", "pub", "normal", "index"), (2, "", "lake"))
    pictures = images(
        ("train", 1), ("evaluation", 1), ("evaluation", 2), ("index", 1), ("test", 1), ("test", 1),
        ("train", 9),
    )  # fmt: skip
    values = clean(table, context, pictures=pictures)[0]
    assert values == [["", "lake", 2, 3], ["", "pub", 1, 3]]


YEARS = '{"P580": [{"time": "+1172-00-00T00:00:00Z"}], "P582": [{"time": "+1954-00-00T00:00:00Z"}]}'


def test_years_make_a_value_of_its_own_only_in_infobox_style(context: StageContext) -> None:
    table = statements((1, "Q16970", "church building"), (2, "Q16970", "church building"))
    table["qualifiers"] = ["{}", YEARS]
    assert clean(table, context)[0] == [["Q16970", "church building", 2, 0]]
    values, chosen, _ = clean(table, context, infobox_style=True)
    assert values == [
        ["", "church building (1172–1954)", 1, 0],
        ["Q16970", "church building", 1, 0],
    ]
    assert chosen == [[1, "church building"], [2, "church building (1172–1954)"]]


def test_what_is_irrelevant_stays_so_with_its_years(context: StageContext) -> None:
    table = statements((1, "Q4167836", "Wikimedia category")).assign(qualifiers=YEARS)
    assert clean(table, context, infobox_style=True)[2] == [
        [1, "only_irrelevant", "Wikimedia category (1172–1954)"]
    ]


def test_one_class_at_two_times_is_several_values_in_infobox_style(context: StageContext) -> None:
    table = statements((1, "Q2", "pub"), (1, "Q2", "pub")).assign(qualifiers=["{}", YEARS])
    dropped = [[1, "several_values", "pub; pub (1172–1954)"]]
    assert clean(table, context, "single-only", infobox_style=True)[2] == dropped


FUNNEL = """\
                     train     paper     index     paper
landmarks                3      203k         1      101k
scraped                  3    129.1k         1     68.1k
several values           1         }         0         }
irrelevant only          1  } 0.25 %         0  } 0.25 %
kept                     2    128.8k         1     67.9k
distinct values          3      5.7k  (both)
first-best: of several values the first of the best rank counts"""


def test_what_each_step_leaves_is_told_beside_the_papers_numbers(context: StageContext) -> None:
    table = statements(
        (1, "Q2", "castle"), (1, "Q3", "museum"), (2, "Q4167836", "Wikimedia category"),
        (3, "Q4", "lake"), (3, "Q5", "pond", "normal", "index"),
    )  # fmt: skip
    with heard() as said:
        clean(table, context)
    assert said == [FUNNEL]
    assert max(map(len, FUNNEL.splitlines())) <= 64  # a note's head takes the other 16 columns


def test_a_set_that_is_not_the_papers_is_told_alone(context: StageContext) -> None:
    folder = SourceOptions(kind="folder", folder=context.source.folder)
    alone = StageContext(context.now, context.state, folder, context.labels)
    with heard() as said:
        clean(TWO, alone)
    assert said[0].splitlines()[0].split() == ["classes", "2"]  # no column of index
    assert said[0].splitlines()[-2].split() == ["distinct", "values", "2"]


def test_nothing_in_is_nothing_out(context: StageContext) -> None:
    assert clean(statements(), context) == ([], [], [])


def test_a_landmark_goes_on_or_is_dropped_but_never_both(context: StageContext) -> None:
    table = statements(
        (1, "Q2", "a", "deprecated"), (2, "Q4167836", "x"), (3, "Q2", "a"), (3, "Q3", "b"),
        (4, "Q2", "a"), (4, "Q2", "a", "normal", "index"),
    )  # fmt: skip
    for policy in ("first-best", "single-only", "all"):
        _, chosen, dropped = clean(table, context, policy)
        kept, gone = {row[0] for row in chosen}, {row[0] for row in dropped}
        assert kept | gone == {1, 2, 3, 4}
        assert not kept & gone
