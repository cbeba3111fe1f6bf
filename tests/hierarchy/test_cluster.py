import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from hgld.artifacts import Vectors
from hgld.config import ClusterOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.cluster import propose_clusters
from hgld.hierarchy.columns import columns_of, table_of

DEGREES = {"lake": 0, "pond": 10, "sea": -10, "church": 90, "chapel": 96, "pub": 200}
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


def propose(context: StageContext, clusters: int = 3, seed: int = 0) -> pd.DataFrame:
    options = ClusterOptions(clusters=clusters, seed=seed)
    table = propose_clusters(values(), vectors(), options=options, context=context)
    return table.set_index("instance_of", drop=False)


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
    table = propose_clusters(equal, vectors(), options=options, context=context)
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
    table = propose_clusters(values()[::-1], turned, options=options, context=context)
    first = propose(context).reset_index(drop=True)
    pd.testing.assert_frame_equal(table.reset_index(drop=True), first)


def test_the_number_of_threads_changes_no_byte(context: StageContext) -> None:
    random = np.random.default_rng(0)
    cloud = random.normal(size=(300, 32))
    cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)
    names = [f"v{i}" for i in range(300)]
    rows = [{"class_id": n, "instance_of": n, "landmarks": 1, "images": 0} for n in names]
    tables = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            tables.append(
                propose_clusters(
                    table_of("values", rows),
                    Vectors(names, cloud, {}),
                    options=ClusterOptions(clusters=12, restarts=2),
                    context=context,
                ).to_csv()
            )
    assert tables[0] == tables[1]


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
        propose_clusters(values(), same, options=ClusterOptions(clusters=2), context=context)


def test_a_value_without_a_vector_is_named(context: StageContext) -> None:
    found = vectors()
    short = Vectors(found.ids[1:], found.vectors[1:], {})
    with pytest.raises(
        InvalidData, match=r"no vector for 'lake'.*delete label_vectors.npz and run"
    ):
        propose_clusters(values(), short, options=ClusterOptions(clusters=2), context=context)
