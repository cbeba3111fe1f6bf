import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.artifacts import Vectors, columns_of, table_of
from hgld.config import ClusterOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.cluster import propose_clusters
from hgld.hierarchy.vector_clusters import ancestor_groups

DEGREES = {"lake": 0, "pond": 10, "sea": -10, "church": 90, "chapel": 96, "pub": 200}
NO_EDITS = table_of("cluster_edits", [])
LANDMARKS = {"lake": 5, "pond": 1, "sea": 1, "church": 30, "chapel": 2, "pub": 7}


def values() -> pd.DataFrame:
    return table_of(
        "values",
        [
            {"class_id": "", "instance_of": name, "landmarks": LANDMARKS[name], "images": 0}
            for name in DEGREES
        ],
    )


def vectors() -> Vectors:
    angles = np.radians(list(DEGREES.values()))
    return Vectors(list(DEGREES), np.stack([np.cos(angles), np.sin(angles)], 1), {})


def edits(*pairs: tuple[str, str], action: str = "merge") -> pd.DataFrame:
    """Rows of (key, with_key)."""
    more = {"action": action, "who": "a", "when": "2026-01-01"}
    return table_of("cluster_edits", [{"key": k, "with_key": w, **more} for k, w in pairs])


def propose(
    context: StageContext, clusters: int = 3, edited: pd.DataFrame = NO_EDITS, **options: Any
) -> pd.DataFrame:
    return propose_both(context, clusters, edited, **options)[0]


def propose_both(
    context: StageContext, clusters: int = 3, edited: pd.DataFrame = NO_EDITS, **more: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    options = ClusterOptions(clusters=clusters, **more)
    table, summary = propose_clusters(values(), vectors(), edited, options=options, context=context)
    return table.set_index("instance_of", drop=False), summary


def members(table: pd.DataFrame) -> dict[int, str]:
    """Cluster -> its values, in the order of the table."""
    return {int(i): " ".join(rows["instance_of"]) for i, rows in table.groupby("cluster")}


def test_clusters_are_numbered_by_landmarks_and_named_by_their_medoid(
    context: StageContext,
) -> None:
    table = propose(context)
    assert list(table.columns) == columns_of("clusters")
    assert table["cluster"].to_dict() == {
        "church": 0, "chapel": 0, "lake": 1, "pond": 1, "sea": 1, "pub": 2,
    }  # fmt: skip
    assert table["cluster_name"].to_dict() == {
        "church": "chapel", "chapel": "chapel", "lake": "lake", "pond": "lake", "sea": "lake",
        "pub": "pub",
    }  # fmt: skip


def test_clusters_of_equal_size_are_numbered_by_name(context: StageContext) -> None:
    equal = values().assign(landmarks=[2, 2, 2, 3, 3, 6])
    options = ClusterOptions(clusters=3)
    table, _ = propose_clusters(equal, vectors(), NO_EDITS, options=options, context=context)
    names = table.drop_duplicates("cluster").sort_values("cluster")["cluster_name"]
    assert names.tolist() == ["chapel", "lake", "pub"]


def test_distance_and_margin_are_to_the_centres(context: StageContext) -> None:
    table = propose(context)
    water = np.mean([[np.cos(a), np.sin(a)] for a in np.radians([0, 10, -10])], axis=0)
    holy = np.mean([[np.cos(a), np.sin(a)] for a in np.radians([90, 96])], axis=0)
    pond = np.array([np.cos(np.radians(10)), np.sin(np.radians(10))])
    own, second = np.linalg.norm(pond - water), np.linalg.norm(pond - holy)
    assert table.loc["pond", "distance"] == pytest.approx(own, abs=1e-6)
    assert table.loc["pond", "margin"] == pytest.approx(second - own, abs=1e-6)
    assert table.loc["pub", "distance"] == 0


def test_the_order_of_the_rows_changes_nothing(context: StageContext) -> None:
    found = vectors()
    turned = Vectors(found.ids[::-1], found.vectors[::-1], {})
    options = ClusterOptions(clusters=3)
    table, _ = propose_clusters(values()[::-1], turned, NO_EDITS, options=options, context=context)
    first = propose(context).reset_index(drop=True)
    pd.testing.assert_frame_equal(table.reset_index(drop=True), first)


COUNT_THREADS = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from hgld.config import ClusterOptions
from hgld.hierarchy.vector_clusters import find_clusters

threads = set()
def count(frame, event, _):
    if event == "call" and frame.f_code.co_name == "fit_predict":
        threads.update(pool["num_threads"] for pool in threadpool_info())

vectors = np.random.default_rng(0).normal(size=(40, 4))
sys.setprofile(count)
find_clusters(vectors, 3, ClusterOptions(method=sys.argv[1]))
sys.setprofile(None)
print(*threads)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["k-means", "ward"])
def test_the_first_clustering_of_a_process_has_one_thread(method: str) -> None:
    command = [sys.executable, "-c", COUNT_THREADS, method]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


CLOUD = """
import sys
from pathlib import Path
import numpy as np
from hgld.artifacts import ARTIFACTS, Vectors
from hgld.config import ClusterOptions, SourceOptions, StageContext
from hgld.hierarchy.cluster import propose_clusters
from hgld.artifacts import table_of

out = Path(sys.argv[1])
cloud = np.random.default_rng(0).normal(size=(600, 48))
cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)
names = [f"v{i}" for i in range(600)]
rows = [{"class_id": "", "instance_of": n, "landmarks": 1, "images": 0} for n in names]
found = propose_clusters(
    table_of("values", rows), Vectors(names, cloud, {}), table_of("cluster_edits", []),
    options=ClusterOptions(clusters=12, restarts=2),
    context=StageContext("2026-01-01", out / "state", SourceOptions(), out),
)
for name, table in zip(("clusters", "cluster_summary"), found):
    ARTIFACTS[name].write(table, out / f"{name}.csv")
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_byte(tmp_path: Path) -> None:
    for threads in ("1", "2"):
        folder = tmp_path / threads
        folder.mkdir()
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads)}
        subprocess.run([sys.executable, "-c", CLOUD, folder], env=environment, check=True)
    for name in ("clusters.csv", "cluster_summary.csv"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_one_cluster_has_no_margin(context: StageContext) -> None:
    assert propose(context, clusters=1)["margin"].tolist() == [0.0] * 6


def test_a_cluster_for_each_value(context: StageContext) -> None:
    table = propose(context, clusters=6)
    assert sorted(table["cluster"]) == list(range(6))
    assert (table["cluster_name"] == table["instance_of"]).all()


def test_more_clusters_than_values_is_an_error_that_names_the_option(
    context: StageContext,
) -> None:
    with pytest.raises(UsageError, match=r"cluster\.clusters is 7.*only 6 different values"):
        propose(context, clusters=7)


def test_values_with_the_same_vector_count_once(context: StageContext) -> None:
    same = Vectors(list(DEGREES), np.ones((6, 2)), {})
    with pytest.raises(UsageError, match="only 1 different values"):
        propose_clusters(
            values(), same, NO_EDITS, options=ClusterOptions(clusters=2), context=context
        )


def test_a_value_without_a_vector_is_named(context: StageContext) -> None:
    found = vectors()
    short = Vectors(found.ids[1:], found.vectors[1:], {})
    with pytest.raises(
        InvalidData, match=r"no vector for 'lake'.*delete label_vectors.npz and run"
    ):
        propose_clusters(
            values(), short, NO_EDITS, options=ClusterOptions(clusters=2), context=context
        )


def test_making_the_same_again_gives_the_same_bytes_and_the_same_report(
    context: StageContext,
) -> None:
    first, again = propose_both(context), propose_both(context)
    assert [t.to_csv() for t in first] == [t.to_csv() for t in again]
    assert set(first[1]["change"]) == {"new"}


def test_a_cluster_that_is_found_again_keeps_its_id(context: StageContext) -> None:
    assert members(propose(context)) == {0: "chapel church", 1: "lake pond sea", 2: "pub"}
    table, summary = propose_both(context, clusters=2)
    assert members(table) == {0: "chapel church pub", 1: "lake pond sea"}
    told = summary.set_index("cluster")[["change", "related"]].T.to_dict("list")
    assert told == {0: ["merged", "0; 2"], 1: ["kept", ""], 2: ["gone", "0"]}


def test_an_id_that_is_gone_is_never_given_again(context: StageContext) -> None:
    for clusters in (3, 2):
        propose(context, clusters)
    table, summary = propose_both(context, clusters=3)
    assert members(table) == {0: "chapel church", 1: "lake pond sea", 3: "pub"}
    assert summary.set_index("cluster").loc[3, "change"] == "split"


def test_a_damaged_memory_of_the_ids_counts_as_none(context: StageContext) -> None:
    first = propose_both(context)
    propose(context, clusters=2)
    (context.state / "cluster_ids.json").write_text("[1")
    assert [t.to_csv() for t in propose_both(context)] == [t.to_csv() for t in first]


def test_a_merged_cluster_is_merged_again_whatever_k_and_has_the_target_s_id(
    context: StageContext,
) -> None:
    propose(context)
    edited = edits(("church", "pub"), ("chapel", "pub"))  # the larger one goes into the smaller
    assert members(propose(context, 3, edited)) == {1: "lake pond sea", 2: "chapel church pub"}
    assert members(propose(context, 2, edited)) == {1: "lake pond sea", 2: "chapel church pub"}
    assert "chapel church pub" in members(propose(context, 5, edited)).values()


def test_a_split_cluster_has_new_ids_and_keeps_them(context: StageContext) -> None:
    propose(context)
    cut = edits(("lake", "lake"), ("pond", "lake"), ("sea", "sea"), action="split")
    table, summary = propose_both(context, 3, cut)
    assert members(table) == {0: "chapel church", 2: "pub", 3: "lake pond", 4: "sea"}
    told = summary.sort_values("cluster")["change"].tolist()
    assert told == ["kept", "gone", "kept", "split", "split"]
    assert members(propose(context, 2, cut)) == {0: "chapel church pub", 3: "lake pond", 4: "sea"}


def test_a_value_that_a_person_put_elsewhere_has_a_margin_below_zero(
    context: StageContext,
) -> None:
    table = propose(context, 3, edits(("sea", "church")))
    assert members(table)[0] == "chapel church sea"
    assert table.loc["sea", "margin"] < 0 < table.loc["church", "margin"]


def test_an_edit_that_is_taken_back_holds_no_more(context: StageContext) -> None:
    taken_back = pd.concat([edits(("sea", "church")), edits(("sea", ""), action="undo")])
    assert members(propose(context, 3, taken_back))[1] == "lake pond sea"


def test_a_cluster_split_off_outlives_the_value_around_which_it_lies(
    context: StageContext,
) -> None:
    cut = edits(("x", "x"), ("pond", "x"), ("sea", "x"), action="split")
    assert "pond sea" in members(propose(context, 3, cut)).values()


def decided(*rows: tuple[str, str]) -> pd.DataFrame:
    """Rows of (label, supercategory)."""
    more = {"key_type": "label", "decision": "keep", "kind": "", "who": "a", "when": "", "why": "",
            "supersedes": "", "evidence": ""}  # fmt: skip
    return table_of("decisions", [{"key": k, "supercategory": s, **more} for k, s in rows])


def seeded(context: StageContext, decisions: pd.DataFrame, clusters: int) -> pd.DataFrame:
    options = ClusterOptions(clusters=clusters, seeds="decided", restarts=3)
    return propose_clusters(
        values(), vectors(), NO_EDITS, decisions, options=options, context=context
    )[0]


def test_decided_values_start_the_clusters(context: StageContext) -> None:
    degrees = {"a": 0, "b": 60, "c": 180, "d": 240}  # k-means alone puts a to b, and c to d
    angles = np.radians(list(degrees.values()))
    found = Vectors(list(degrees), np.stack([np.cos(angles), np.sin(angles)], 1), {})
    rows = [{"class_id": "", "instance_of": n, "landmarks": 1, "images": 0} for n in degrees]
    options = ClusterOptions(clusters=2, seeds="decided")
    told = decided(("a", "x"), ("d", "x"), ("b", "y"), ("c", "y"))
    for decisions, expected in ((told, ["a d", "b c"]), (decided(), ["a b", "c d"])):
        table, _ = propose_clusters(
            table_of("values", rows), found, NO_EDITS, decisions, options=options, context=context
        )
        assert sorted(members(table).values()) == expected


def test_centres_that_no_decision_gives_are_drawn(context: StageContext) -> None:
    found = members(seeded(context, decided(("pub", "inn")), 3))
    assert sorted(found.values()) == ["chapel church", "lake pond sea", "pub"]


def test_more_decided_supercategories_than_clusters_are_refused(context: StageContext) -> None:
    many = decided(("pub", "inn"), ("church", "faith"))
    with pytest.raises(UsageError, match=r"cluster\.clusters is 1.*2 supercategories.*2 or more"):
        seeded(context, many, 1)


def test_levels_above_group_the_centres_of_the_level_below(context: StageContext) -> None:
    levels = ("domain", "kind", "group")
    _, summary = propose_both(context, clusters=6, levels=levels, above=(2, 3), method="ward")
    rows = summary.set_index("cluster_name")[["level_domain", "level_kind"]]
    water, holy = [("pond", "lake")] * 3, [("pond", "church")] * 2
    assert [tuple(rows.loc[name]) for name in ("lake", "pond", "sea")] == water
    assert [tuple(rows.loc[name]) for name in ("church", "chapel")] == holy
    assert tuple(rows.loc["pub"]) == ("pub", "pub")


@pytest.mark.parametrize("method", ["ward", "average"])
def test_linkage_finds_the_same_plain_clusters(context: StageContext, method: str) -> None:
    assert members(propose(context, method=method)) == members(propose(context))
    assert len(members(propose(context, clusters=6, method=method))) == 6


def test_without_numbers_above_the_summary_has_no_further_column(context: StageContext) -> None:
    _, summary = propose_both(context)
    assert list(summary.columns) == columns_of("cluster_summary")


def test_more_clusters_above_than_below_keep_the_ids_and_name_the_level(
    context: StageContext,
) -> None:
    merged = edits(("lake", "church"), ("pond", "church"), ("sea", "church"))
    with pytest.raises(UsageError, match=r"3 clusters at level 'kind', but .* only 2 different"):
        propose(context, 3, merged, above=(3,))
    assert not (context.state / "cluster_ids.json").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"levels": []}, "one or more different names"),
        ({"levels": [2, 5]}, r"give 2 names, above = \[2\] and clusters = 5"),
        ({"levels": ["a", "a"]}, "different names"),
        ({"levels": ["a", "class"]}, "'class', the name of the level below them"),
        ({"levels": ["a", "landmark"]}, "none is 'landmark'"),
        ({"levels": ["a > b", "c"]}, "'a > b' is not a name of a level"),
        ({"above": [2, 3]}, "above has 2 numbers, but 1 level above the finest"),
        ({"above": [5], "clusters": 4}, "no level has fewer clusters"),
        ({"method": "ward", "seeds": "decided"}, 'needs method = "k-means"'),
    ],
)
def test_levels_that_are_no_tree_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ClusterOptions(**options)


def test_values_of_one_stated_ancestor_are_in_one_cluster_at_each_level(
    context: StageContext,
) -> None:
    by_class = values().assign(class_id=list(DEGREES))
    ancestry = table_of(
        "ancestry",
        [
            {"item_id": one, "above": up, "label": "", "property": "P279", "statement": "",
             "revision": 1}
            for one, up in {"pond": "drinks", "pub": "drinks", "church": "stone"}.items()
        ],
    )  # fmt: skip
    for method in ("k-means", "ward", "average"):
        options = ClusterOptions(
            levels=("domain", "group"), above=(2,), clusters=3, ancestry=1, method=method
        )
        table, summary = propose_clusters(
            by_class, vectors(), NO_EDITS, ancestry=ancestry, options=options, context=context
        )
        cluster = table.set_index("instance_of")["cluster"]
        assert cluster["pond"] == cluster["pub"]
        assert (cluster == cluster["pub"]).sum() == 2
        shown = summary[summary["change"] != "gone"]
        assert shown["level_domain"].nunique() == 2 and len(shown) == 3
    apart = edits(("pub", "pub"), action="split")
    table, _ = propose_clusters(
        by_class, vectors(), apart, ancestry=ancestry, options=options, context=context
    )
    assert "pub" in members(table.set_index("instance_of", drop=False)).values()


def test_more_clusters_than_groups_of_one_ancestor_are_refused(context: StageContext) -> None:
    by_class = values().assign(class_id=list(DEGREES))
    columns = {"label": "", "property": "P279", "statement": "", "revision": 1}
    rows = [{"item_id": one, "above": "all", **columns} for one in DEGREES]
    options = ClusterOptions(clusters=2, ancestry=1)
    with pytest.raises(UsageError, match="only 1 different"):
        propose_clusters(
            by_class, vectors(), NO_EDITS, ancestry=table_of("ancestry", rows), options=options,
            context=context,
        )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.integers(1, 4))
def test_a_group_shares_an_ancestor_and_circles_end(
    statements: list[tuple[int, int]], most_hops: int
) -> None:
    ancestry = pd.DataFrame(statements, columns=["item_id", "above"]).astype(str)
    class_ids = [str(number) for number in range(8)]
    groups = ancestor_groups(class_ids, ancestry, most_hops)
    above = {one: {one} for one in class_ids}
    for _ in range(most_hops):
        above = {
            one: found | {str(up) for low, up in statements if str(low) in found}
            for one, found in above.items()
        }
    for group in np.unique(groups):
        members = [above[class_ids[row]] for row in np.flatnonzero(groups == group)]
        assert len(members) == 1 or set.intersection(*members)
