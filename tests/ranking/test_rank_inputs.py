"""What is not a tensor with values, and labels that are not paths, get one line of error."""

import numpy as np
import pytest
import torch

from hgld.errors import ShapeError, UsageError
from hgld.ranking import losses, metrics, parts
from hgld.ranking.levels import (
    RelevanceWarning,
    coarser_column,
    finest_ids,
    shared_levels,
    weighted_relevance,
)
from hgld.ranking.memory import MemoryBank

SCORES = torch.tensor([[0.9, 0.5, 0.1]])
LEVELS = torch.tensor([[2, 1, 0]], dtype=torch.int8)
PATHS = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]])
LOCAL = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 0]])  # species 0 of two genera
EMBEDDINGS = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
OTHERS = {
    "list": torch.Tensor.tolist,
    "ndarray": torch.Tensor.numpy,
    "meta": lambda tensor: tensor.to("meta"),
}
CALLS = {
    "scores": [
        lambda bad: losses.sup_ap(bad, LEVELS),
        lambda bad: losses.blackbox_ap(bad, LEVELS),
        lambda bad: losses.soft_bin_ap(bad, LEVELS),
        lambda bad: metrics.h_ap(bad, LEVELS, 2),
        lambda bad: metrics.recall_at_k(bad, LEVELS, 1, 1),
    ],
    "levels": [
        lambda bad: losses.sup_h_ap(SCORES, bad, 2),
        lambda bad: metrics.ndcg(SCORES, bad),
        lambda bad: weighted_relevance(bad, [0.5, 0.5]),
    ],
    "labels": [
        lambda bad: losses.SupAP()(EMBEDDINGS, bad),
        lambda bad: losses.HAPPIER(2, 4, 4)(EMBEDDINGS, bad),
        lambda bad: losses.Triplet()(EMBEDDINGS, bad),
        lambda bad: losses.ProxyNCA(4, 4)(EMBEDDINGS, bad),
        lambda bad: shared_levels(bad, PATHS),
        lambda bad: metrics.rank_gallery(EMBEDDINGS, bad, EMBEDDINGS, PATHS),
        lambda bad: losses.CSL(4, 4, bad, (0.4, 0.2)),
        lambda bad: MemoryBank(8, 4, 2).extend(EMBEDDINGS, bad),
    ],
    "embeddings": [
        lambda bad: losses.SupHAP(2)(bad, PATHS),
        lambda bad: losses.NormSoftmax(4, 4)(bad, PATHS),
        lambda bad: losses.FastAP()(bad, PATHS),
        lambda bad: losses.SupAP()(EMBEDDINGS, PATHS, bad, PATHS),
        lambda bad: metrics.evaluate(bad, PATHS, EMBEDDINGS, PATHS, ["AP"]),
        lambda bad: MemoryBank(8, 4, 2).extend(bad, PATHS),
    ],
}
GOOD = {"scores": SCORES, "levels": LEVELS, "labels": PATHS, "embeddings": EMBEDDINGS}
MODULES = {
    "SupAP": losses.SupAP,
    "BlackBoxAP": losses.BlackBoxAP,
    "SoftBinAP": losses.SoftBinAP,
    "HAPPIER": lambda: losses.HAPPIER(2, 4, 4),
    "XBMContrastive": losses.XBMContrastive,
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("what", CALLS)
def test_what_is_not_a_tensor_with_values_is_refused_by_name(what, kind) -> None:
    expected = "meta tensor" if kind == "meta" else f"of type {kind}; expected a torch.Tensor"
    for call in CALLS[what]:
        with pytest.raises(ShapeError, match=expected):
            call(OTHERS[kind](GOOD[what]))


def test_the_third_argument_of_csl_is_named() -> None:
    with pytest.raises(ShapeError, match="class_labels is of type int"):
        losses.CSL(2, 4, 64)


@pytest.mark.parametrize("name", MODULES)
def test_torch_func_gives_the_gradient_of_backward(name) -> None:
    module, embeddings = MODULES[name](), EMBEDDINGS.clone().requires_grad_()
    module(embeddings, PATHS).backward()
    found = torch.func.grad(lambda given: module(given, PATHS))(EMBEDDINGS)
    torch.testing.assert_close(found, embeddings.grad, rtol=0, atol=0)
    found = torch.func.jacrev(lambda given: module(given, PATHS))(EMBEDDINGS)
    torch.testing.assert_close(found, embeddings.grad)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("name", ["SupAP", "BlackBoxAP", "SoftBinAP", "HAPPIER"])
@pytest.mark.parametrize(
    "transform",
    [torch.func.hessian, torch.func.jacfwd, lambda f: lambda e: torch.func.jvp(f, (e,), (e,))],
    ids=["hessian", "jacfwd", "jvp"],
)
def test_forward_mode_of_rank_losses_is_refused_in_words(transform, name) -> None:
    module = MODULES[name]()
    with pytest.raises(RuntimeError, match="no forward-mode derivative"):
        transform(lambda given: module(given, PATHS))(EMBEDDINGS)


@pytest.mark.parametrize("loss", [losses.SupAP(), losses.NormSoftmax(4, 4)])
def test_a_trace_is_refused_in_words(loss) -> None:
    with pytest.raises(ShapeError, match="is within a trace"):
        torch.func.linearize(lambda given: loss(given, PATHS), EMBEDDINGS)


def test_vmap_is_refused_in_words() -> None:
    with pytest.raises(ShapeError, match=r"within torch\.vmap"):
        torch.vmap(lambda row: losses.sup_ap(row[None], LEVELS))(SCORES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_a_compiled_loss_has_the_value_and_the_gradient_of_an_eager_one() -> None:
    embeddings, module = EMBEDDINGS.clone().requires_grad_(), losses.SupAP()
    module(embeddings, PATHS).backward()
    again = EMBEDDINGS.clone().requires_grad_()
    torch.compile(module, backend="eager")(again, PATHS).backward()
    torch.testing.assert_close(again.grad, embeddings.grad)


def test_a_full_graph_is_refused_with_the_reason() -> None:
    compiled = torch.compile(losses.sup_ap, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="leave out fullgraph=True"):
        compiled(SCORES, LEVELS)


@pytest.mark.parametrize(
    "loss",
    [
        losses.HAPPIER(2, 2, 4),
        losses.RODNDCG(2, 2, 4),
        losses.ROADMAP(num_classes=2, dim=4),
        losses.NormSoftmax(2, 4),
        losses.ProxyNCA(2, 4),
        losses.LevelSum([losses.NormSoftmax(2, 4), losses.NormSoftmax(2, 4)]),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_a_finest_id_under_two_parents_is_refused_where_proxies_know_classes_by_it(loss) -> None:
    with pytest.raises(ShapeError, match=r"the finest id 0 is in two classes: \[0, 0\] and \[1, 0"):
        loss(EMBEDDINGS[:4], LOCAL)


def test_csl_refuses_a_path_other_than_that_of_its_class() -> None:
    loss = losses.CSL(4, 4, torch.tensor([[0, 0], [0, 1], [1, 2], [1, 3]]), (0.4, 0.2))
    with pytest.raises(ShapeError, match=r"the path \[1, 1\], but class 1 has \[0, 1\]"):
        loss(EMBEDDINGS[:2], torch.tensor([[0, 0], [1, 1]]))


def test_finest_ids_are_the_last_column_as_int64() -> None:
    assert finest_ids(PATHS.int()).tolist() == PATHS[:, -1].tolist()


@pytest.mark.parametrize(
    ("labels", "at"),
    [
        ([[0, 0], [1, 0], [2, 1], [3, 1]], 1),
        ([[0, 0, 0], [0, 1, 0], [1, 2, 1], [1, 3, 1]], 2),
        ([[0, 0], [0, 1], [1, 2], [1, 3]], None),
        ([[0, 0], [0, 1], [1, 0], [1, 1]], None),  # ids start again under each parent
        ([[0, 0], [1, 1]], None),
        ([[0], [1]], None),
    ],
)
def test_a_column_is_coarser_where_it_joins_classes_of_the_one_before(labels, at) -> None:
    assert coarser_column(torch.tensor(labels)) == at


def test_one_image_in_no_sample_shows_that_a_column_is_not_coarser() -> None:
    fine = torch.arange(10_000)
    labels = torch.stack([fine, fine // 2], 1)
    assert coarser_column(labels) == 1
    labels[2, 0] = 0
    assert coarser_column(labels) is None


def test_evaluate_warns_of_levels_from_fine_to_coarse() -> None:
    turned = PATHS.flip(1)
    with pytest.warns(RelevanceWarning, match="level 2 is coarser than level 1 before it"):
        metrics.evaluate(EMBEDDINGS, turned, EMBEDDINGS, turned, ["H-AP"], exclude_self=True)


def test_a_hierarchical_loss_warns_once_of_levels_from_fine_to_coarse() -> None:
    loss = losses.SupHAP(2)
    with pytest.warns(UserWarning, match="column 1 of the labels is coarser than column 0"):
        loss(EMBEDDINGS, PATHS.flip(1))
    loss(EMBEDDINGS, PATHS.flip(1))  # a second warning would be an error here


@pytest.mark.parametrize("known", [True, False])
def test_references_without_another_image_of_a_class_are_warned_of(known) -> None:
    ids = torch.arange(8)
    labels = torch.stack([ids, ids], 1)
    references = {"ref_embeddings": EMBEDDINGS, "ref_labels": labels if known else labels + 8}
    with pytest.warns(UserWarning, match="other than itself"):
        losses.SupAP()(EMBEDDINGS, labels, **references, ids=ids, ref_ids=ids + 8 * (not known))


def test_labels_of_one_level_are_told_how_to_become_paths() -> None:
    expected = (
        r"query_labels have shape \(8,\); expected \(images, levels\): query_labels\[:, None\]"
    )
    with pytest.raises(ShapeError, match=expected):
        metrics.evaluate(EMBEDDINGS, PATHS[:, 1], EMBEDDINGS, PATHS[:, 1], ["R@1"])


@pytest.mark.parametrize("kind", [torch.int64, torch.int8])
def test_images_without_a_label_are_no_class_of_queries_and_gallery(kind) -> None:
    """Many tables mean "no label" by -1; as a class they would find each other."""
    labels = PATHS.to(kind).clone()
    labels[4:6, 1] = -1
    sides = EMBEDDINGS, labels, EMBEDDINGS, labels
    reason = "query_labels and {}_labels hold -1 at level 2: images without a label"
    with pytest.raises(ShapeError, match=reason.format("gallery")):
        metrics.evaluate(*sides, ["AP"], exclude_self=True)
    with pytest.raises(ShapeError, match=reason.format("part")):
        parts.rank_part(*sides)
    # distractors, and queries of names of coarser classes
    for queries, gallery in ((PATHS.to(kind), labels), (labels, PATHS.to(kind))):
        assert metrics.evaluate(EMBEDDINGS, queries, EMBEDDINGS, gallery, ["AP"]).queries == 8


@pytest.mark.parametrize(
    "loss",
    [losses.SupAP(), losses.SupHAP(2), losses.HiMulCon(2), losses.Triplet(), losses.CLCD(2, 4)],
)
def test_images_without_a_label_are_no_class_of_a_loss(loss) -> None:
    labels = PATHS.index_put((torch.arange(4, 6), torch.tensor(1)), torch.tensor(-1))
    with pytest.raises(ShapeError, match=r"^labels hold -1 at level 2: images without a label"):
        loss(EMBEDDINGS, labels)


def test_a_loss_takes_images_without_a_label_at_a_finer_level_or_among_references() -> None:
    labels = PATHS.index_put((torch.arange(4, 6), torch.tensor(1)), torch.tensor(-1))
    coarse = losses.SupAP(level=1)
    assert torch.equal(coarse(EMBEDDINGS, labels), coarse(EMBEDDINGS, PATHS))
    assert losses.SupAP()(EMBEDDINGS, PATHS, EMBEDDINGS, labels).isfinite()
    with pytest.raises(ShapeError, match=r"^labels and ref_labels hold -1 at level 2"):
        losses.SupAP()(EMBEDDINGS, labels, EMBEDDINGS, labels)


@pytest.mark.parametrize(
    ("names", "reason"), [(["a", "a"], "a different name for each"), (["a"], "1 level names for 2")]
)
def test_level_names_are_as_many_as_levels_and_differ(names, reason) -> None:
    for call in (
        lambda: metrics.evaluate(EMBEDDINGS, PATHS, EMBEDDINGS, PATHS, ["R@1"], names),
        lambda: metrics.Ranking.of(LEVELS, 2).evaluate(["R@1"], names),
    ):
        with pytest.raises(ShapeError, match=reason):
            call()


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (torch.zeros(2, 0, dtype=torch.int64), r"of shape \(2, 0\); expected integers"),
        (torch.zeros(2, 2), "first is torch.float32"),
        (torch.tensor([[0, 8]]), "first has rows 0 to 8; gallery_labels has 8"),
        (torch.tensor([[-1, 0]]), "first has rows -1 to 0"),
    ],
)
def test_votes_of_rows_that_are_not_in_the_gallery_are_refused(first, reason) -> None:
    with pytest.raises(ShapeError, match=reason):
        metrics.vote_paths(first, PATHS)


@pytest.mark.parametrize("labels", [PATHS[:4], torch.cat([PATHS, PATHS]), PATHS[:, :1]])
def test_votes_with_the_labels_of_another_gallery_are_refused(labels) -> None:
    ranking = metrics.rank_gallery(EMBEDDINGS, PATHS, EMBEDDINGS, PATHS, first=3)
    with pytest.raises(ShapeError, match=r"gallery_labels have shape .*; the ranking is of \(8, 2"):
        ranking.evaluate(["HC@3"], gallery_labels=labels)


@pytest.mark.parametrize("first", [-1, 1.5])
def test_a_number_of_first_ranks_is_whole_and_not_negative(first) -> None:
    with pytest.raises(ShapeError, match=f"first is {first}; expected a whole number"):
        metrics.rank_gallery(EMBEDDINGS, PATHS, EMBEDDINGS, PATHS, first=first)


def test_a_cut_off_beyond_int64_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a cut-off below 2"):
        metrics.parse(f"R@{10**20}")
    with pytest.raises(ShapeError, match="expected less than 2"):
        metrics.recall_at_k(SCORES, LEVELS, 1, 10**20)


def test_weights_of_wap_are_separated_by_slashes() -> None:
    with pytest.raises(UsageError, match="separated by '/'"):
        metrics.parse("wAP(weights=0.2,0.8)")
    assert np.isclose(sum(metrics.parse("wAP(weights=0.2/0.8)").weights), 1.0)
