"""Losses of embeddings and labels: mean of the functions over the batch's own scores."""

import copy
import math
import pickle
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking import losses
from hgld.ranking.rank_loss import unit_vectors
from hgld.ranking.steps import UpperStep

CLASSES = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 3]])


def batch(seed=0, size=12, dim=6, dtype=torch.float64):
    make = torch.Generator().manual_seed(seed)
    labels = CLASSES[torch.randint(0, 4, (size,), generator=make)]
    return torch.randn(size, dim, generator=make, dtype=dtype).requires_grad_(), labels


MODULES = {
    "SmoothAP": (losses.SmoothAP(), lambda s, x: losses.smooth_ap(s, grades.at_least(x, 2))),
    "SupAP": (losses.SupAP(level=1), lambda s, x: losses.sup_ap(s, x)),
    "SupHAP": (losses.SupHAP(2, 2.0), lambda s, x: losses.sup_h_ap(s, x, 2, 2.0)),
    "SupNDCG": (losses.SupNDCG(2), losses.sup_ndcg),
    "SmoothHAP": (losses.SmoothHAP(2), lambda s, x: losses.smooth_h_ap(s, x, 2)),
    "SupRecall": (losses.SupRecall((1, 2)), lambda s, x: losses.sup_recall(
        s, grades.at_least(x, 2), (1, 2))),
    "SoftBinAP": (losses.SoftBinAP(level=1), lambda s, x: losses.soft_bin_ap(s, x)),
    "PairCalibration": (losses.PairCalibration(level=1), losses.pair_calibration),
    "BlackBoxAP": (losses.BlackBoxAP(level=1), losses.blackbox_ap),
    "BlackBoxRecall": (
        losses.BlackBoxRecall(level=1, include_self=True), losses.blackbox_recall),
    "SupCon": (losses.SupCon(0.2, level=1, include_self=True), lambda s, x: losses.sup_con(
        s, x, 0.2)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("chunk", [None, 5])
def test_a_module_is_the_mean_of_its_function(name, chunk) -> None:
    module, function = MODULES[name]
    module.chunk = chunk
    embeddings, labels = batch()
    found = module(embeddings, labels)
    unit = F.normalize(embeddings, dim=1)
    expected = function(unit @ unit.T, grades.shared_levels(labels, labels)).mean()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, embeddings)[0], torch.autograd.grad(expected, embeddings)[0]
    )


def test_without_self_a_lone_image_is_left_out_of_the_mean() -> None:
    unit = torch.eye(3, dtype=torch.float64)
    embeddings = torch.stack([unit[0], unit[1], unit[2]])
    labels = torch.tensor([[0], [0], [1]])
    # images 0 and 1 find each other behind nobody: the lone image 2 ties with them
    found = losses.SupAP(include_self=False)(embeddings, labels)
    assert found.item() == pytest.approx(1 - 1 / 2)


@pytest.mark.parametrize("size", [12, 80])  # by all pairs, and by a kernel
def test_h_ap_weighted_at_the_finest_level_alone_is_ap(size) -> None:
    embeddings, labels = batch(size=size)
    labels = torch.cat([labels[:4], labels[4:, :1].expand(-1, 2) + torch.arange(4, size)[:, None]])
    labels[4:, 0] = 0  # most images are alone in their finest class
    found = losses.SupHAP(2, weights=(0.0, 1.0), include_self=False)(embeddings, labels)
    expected = losses.SupAP(include_self=False)(embeddings, labels)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(loss, embeddings)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("loss", [losses.BlackBoxAP, losses.BlackBoxRecall])
def test_a_blackbox_gradient_ignores_queries_without_a_positive(loss, chunk) -> None:
    (queries, labels), (references, r_labels) = batch(0, 6), batch(1, 30)
    labels[3:] += 10  # none of the references is of their classes
    module = loss(include_self=False, chunk=chunk)
    found = [
        torch.autograd.grad(module(queries[:size], labels[:size], references, r_labels), queries)[0]
        for size in (3, 6)
    ]
    assert found[0].any()
    torch.testing.assert_close(found[1], found[0])


def test_references_take_the_place_of_the_batch_and_learn_too() -> None:
    (queries, q_labels), (references, r_labels) = batch(0, 5), batch(1, 9)
    found = losses.SupHAP(2)(queries, q_labels, references, r_labels)
    unit, others = F.normalize(queries, dim=1), F.normalize(references, dim=1)
    levels = grades.shared_levels(q_labels, r_labels)
    expected = losses.sup_h_ap(unit @ others.T, levels, 2)[(levels > 0).any(1)].mean()
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found, [queries, references])
    for one, two in zip(
        gradients, torch.autograd.grad(expected, [queries, references]), strict=True
    ):
        torch.testing.assert_close(one, two)


def test_ids_take_a_query_out_of_the_references_that_hold_it() -> None:
    embeddings, labels = batch()
    ids = torch.arange(12)
    shuffled = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    found = losses.SupAP(include_self=False)(
        embeddings, labels, embeddings[shuffled], labels[shuffled], ids, ids[shuffled]
    )
    torch.testing.assert_close(found, losses.SupAP(include_self=False)(embeddings, labels))


@pytest.mark.parametrize("calibration", ["pair", "pair-pooled"])
def test_roadmap_by_pairs_weighs_both_parts(calibration) -> None:
    embeddings, labels = batch()
    unit = F.normalize(embeddings, dim=1)
    scores, levels = unit @ unit.T, grades.at_least(grades.shared_levels(labels, labels), 2)
    other = losses.pair_calibration(scores, levels).mean()
    if calibration == "pair-pooled":
        other = losses.pooled_calibration(scores, levels)
    expected = 0.75 * losses.sup_ap(scores, levels).mean() + 0.25 * other
    found = losses.ROADMAP(lam=0.25, calibration=calibration)(embeddings, labels)
    torch.testing.assert_close(found, expected)


ROD = {
    "HAPPIER": (losses.HAPPIER(2, 4, 6, lam=0.2), losses.SupHAP(2)),
    "ROADMAP": (losses.ROADMAP(0.2, num_classes=4, dim=6), losses.SupAP()),
    "RODNDCG": (losses.RODNDCG(2, 4, 6, lam=0.2), losses.SupNDCG(2)),
    "RODRecall": (losses.RODRecall(0.2, num_classes=4, dim=6), losses.SupRecall()),
}


@pytest.mark.parametrize("name", ROD)
def test_a_decomposable_loss_is_its_rank_loss_and_cross_entropy_of_cosines(name) -> None:
    embeddings, labels = batch()
    module, rank = copy.deepcopy(ROD[name])
    module = module.double()
    unit = F.normalize(embeddings, dim=1)
    logits = unit @ F.normalize(module.proxies, dim=1).T / 0.05
    own = logits.exp()[torch.arange(12), labels[:, 1]]
    entropy = -(own / logits.exp().sum(1)).log().mean()
    expected = 0.8 * rank(embeddings, labels) + 0.2 * entropy
    torch.testing.assert_close(module(embeddings, labels), expected)


@pytest.mark.parametrize(
    "module",
    [
        losses.ROADMAP(num_classes=4, dim=6),
        losses.RODRecall(num_classes=4, dim=6),
        losses.HAPPIER(2, 4, 6),
        losses.RODNDCG(2, 4, 6),
        losses.CSL(4, 6, CLASSES, margins=(0.45, 0.25)),
    ],
)
def test_proxies_are_a_parameter_of_that_name_and_learn(module) -> None:
    embeddings, labels = batch(dtype=torch.float32)
    module(embeddings, labels).backward()
    assert [name for name, _ in module.named_parameters()] == ["proxies"]
    assert module.proxies.grad.abs().sum() > 0


def test_csl_by_hand() -> None:
    module = losses.CSL(4, 4, CLASSES, margins=(0.5, 0.25), scale=2.0)
    module.proxies.data = torch.eye(4)
    found = module(torch.eye(4)[:1], CLASSES[:1])
    # level 1: others 2 and 3 at cosine 0; level 2: others 1, 2, 3; own at 1
    log = torch.tensor([2.0, 3.0]).log()
    expected = F.softplus(log - 2.0 + 2.0 * torch.tensor([0.5, 0.25])).sum()
    torch.testing.assert_close(found, expected)


def test_csl_is_its_loop() -> None:
    paths = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 0, 3], [1, 1, 4], [1, 1, 5]])
    torch.manual_seed(0)
    module = losses.CSL(6, 5, paths, margins=(0.45, 0.35, 0.25), scale=4.0).double()
    embeddings, classes = torch.randn(9, 5, dtype=torch.float64), torch.arange(9) * 5 % 6
    cosines = F.normalize(embeddings, dim=1) @ F.normalize(module.proxies, dim=1).T
    total = 0.0
    for row, own in zip(cosines.tolist(), classes.tolist(), strict=True):
        for level, margin in enumerate((0.45, 0.35, 0.25)):
            outside = [z for z in range(6) if (paths[z] != paths[own])[: level + 1].any()]
            terms = [math.exp(4.0 * (row[z] - row[own] + margin)) for z in outside]
            total += math.log(1.0 + sum(terms)) / 9
    assert module(embeddings, paths[classes]).item() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith("BlackBox")])
def test_modules_pass_finite_differences(name) -> None:  # Blackbox's gradient is no derivative
    embeddings, labels = batch(3, size=6, dim=4)
    module = MODULES[name][0]
    assert torch.autograd.gradcheck(lambda e: module(e, labels), embeddings, eps=1e-7, atol=2e-4)


PROXIES = {
    "ProxyCalibration": lambda: losses.ProxyCalibration(4, 4),
    "CSL": lambda: losses.CSL(4, 4, CLASSES, margins=(0.45, 0.25), scale=4.0),
    "ProxyNCA": lambda: losses.ProxyNCA(4, 4),
    "ROADMAP": lambda: losses.ROADMAP(num_classes=4, dim=4),
    "RODRecall": lambda: losses.RODRecall(num_classes=4, dim=4),
    "HAPPIER": lambda: losses.HAPPIER(2, 4, 4),
    "RODNDCG": lambda: losses.RODNDCG(2, 4, 4),
    "ProxyAnchor": lambda: losses.ProxyAnchor(4, 4),
    "ArcFace": lambda: losses.ArcFace(4, 4, scale=8.0),
    "SubCenterArcFace": lambda: losses.SubCenterArcFace(4, 4, scale=8.0),
    "CosFace": lambda: losses.CosFace(4, 4, scale=8.0),
    "HierarchicalProxies": lambda: losses.HierarchicalProxies(4, 4, CLASSES, (0.5, 2.0), 0.2),
    "CLCD": lambda: losses.CLCD(2, 4),
    "CLCD-ICR": lambda: losses.CLCD(2, 4, "independent"),
    "Sigma-NSM": lambda: losses.LevelSum([losses.NormSoftmax(2, 4), losses.NormSoftmax(4, 4)]),
}
OTHERS = {
    "PooledCalibration": lambda: losses.PooledCalibration(),
    "XBMContrastive": lambda: losses.XBMContrastive(),
    "HiMulCon": lambda: losses.HiMulCon(2, temperature=0.5),
    "Triplet": lambda: losses.Triplet(),
    "FastAP": lambda: losses.FastAP(),
    "SmoothRecall": lambda: losses.SmoothRecall(tau=0.1),
}


@pytest.mark.parametrize("name", PROXIES | OTHERS)
def test_every_other_loss_passes_finite_differences_by_embeddings_and_proxies(name) -> None:
    torch.manual_seed(0)
    embeddings, labels = batch(3, size=6, dim=4)
    module = (PROXIES | OTHERS)[name]().double()
    names = [name for name, _ in module.named_parameters()]
    given = [parameter.detach().requires_grad_() for parameter in module.parameters()]

    def loss(e, *parameters):
        state = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, state, (e, labels))

    assert bool(names) == (name in PROXIES)
    assert torch.autograd.gradcheck(loss, (embeddings, *given), eps=1e-7, atol=2e-4)


def recall_of_mixtures(embeddings, labels, refs, ref_labels, seed, ks, tau=0.1):
    """R@k with the mixtures of all pairs of a class on both sides, query by query."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    gallery = unit if refs is None else torch.nn.functional.normalize(refs, dim=1)
    ref_labels = labels if refs is None else ref_labels
    pairs = [(i, j) for i, j in combinations(range(len(unit)), 2) if labels[i] == labels[j]]
    shares = torch.rand(len(pairs), 1, generator=torch.Generator().manual_seed(seed)).double()
    mixed = [s * unit[i] + (1 - s) * unit[j] for (i, j), s in zip(pairs, shares, strict=True)]
    queries, gallery = torch.stack([*unit, *mixed]), torch.stack([*gallery, *mixed])
    own = [labels[i] for i, _ in pairs]
    paths, ref_paths = [*labels, *own], [*ref_labels, *own]
    found = []
    for q, query in enumerate(queries):
        itself = q if refs is None else len(gallery) - len(mixed) + q - len(unit)
        others = [
            g for g in range(len(gallery)) if g != itself or (refs is not None and q < len(unit))
        ]
        scores = gallery[others] @ query
        levels = torch.tensor([int(ref_paths[g] == paths[q]) for g in others])
        if bool(levels.any()):
            found.append(losses.smooth_recall(scores[None], levels[None], ks, tau=tau))
    return torch.cat(found).mean()


@pytest.mark.parametrize("memory", [False, True])
def test_similarity_mixup_ranks_the_mixtures_of_every_pair_of_a_class(memory) -> None:
    torch.manual_seed(0)
    embeddings = torch.randn(7, 3, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3])
    refs = torch.randn(5, 3, dtype=torch.float64) if memory else None
    ref_labels = torch.tensor([0, 1, 2, 3, 4]) if memory else None
    module = losses.SmoothRecall(ks=(1, 2), tau=0.1, mixup=True)
    for call in (1, 2):
        given = (refs, ref_labels[:, None]) if memory else ()
        found = module(embeddings, labels[:, None], *given)
        expected = recall_of_mixtures(embeddings, labels, refs, ref_labels, call, (1, 2))
        torch.testing.assert_close(found, expected)
    resumed = losses.SmoothRecall(ks=(1, 2), tau=0.1, mixup=True)
    resumed.load_state_dict(module.state_dict())
    given = (embeddings, labels[:, None])
    torch.testing.assert_close(resumed(*given), module(*given))
    assert losses.SmoothRecall().state_dict() == {}


def test_similarity_mixup_passes_finite_differences() -> None:
    embeddings, labels = batch(3, size=6, dim=4)

    def loss(e):
        return losses.SmoothRecall(tau=0.1, mixup=True)(e, labels)

    assert torch.autograd.gradcheck(loss, (embeddings,), eps=1e-7, atol=2e-4)


@pytest.mark.parametrize("refiner", ["accumulated", "independent"])
def test_concepts_pull_the_pairs_whose_finest_level_is_theirs(refiner) -> None:
    torch.manual_seed(0)
    embeddings, labels = batch(3, size=7, dim=8)
    module = losses.CLCD(2, 8, refiner).double()
    found = module(embeddings, labels)
    standard = F.normalize(embeddings, dim=1)
    standard = (standard - standard.mean(0)) / (standard.var(0, unbiased=False) + 1e-5).sqrt()
    fine = module.reduce[0](standard)
    coarse = module.reduce[1](fine if refiner == "accumulated" else standard)
    pulled, pushed = {1: [], 2: []}, []
    for i in range(7):
        for j in set(range(7)) - {i}:
            shared = int((labels[i] == labels[j]).cumprod(0).sum())
            concept = module.recover[0](fine[i]) if shared == 2 else module.recover[1](coarse[i])
            cosine = F.cosine_similarity(concept, standard[j], dim=0)
            (pulled[shared] if shared else pushed).append(cosine)
    means = [torch.stack(cosines).mean() for cosines in (pulled[2], pulled[1], pushed)]
    torch.testing.assert_close(found, (means[2] - means[0] - means[1]) / 2)


@pytest.mark.parametrize(
    ("given", "says"), [((3, 7), "3 levels need 8"), ((2, 8, "other"), "refiner is 'other'")]
)
def test_concepts_need_numbers_and_a_known_refiner(given, says) -> None:
    with pytest.raises(ShapeError, match=says):
        losses.CLCD(*given)


def test_concepts_refuse_embeddings_of_another_dimension() -> None:
    with pytest.raises(ShapeError, match="embeddings have 5 dimensions; dim is 4"):
        losses.CLCD(2, 4)(torch.randn(2, 5), torch.zeros(2, 2, dtype=torch.long))


def test_clcd_of_double_precision_is_that_of_its_weights() -> None:
    vectors, labels = torch.randn(6, 4), torch.arange(6)[:, None] // torch.tensor([4, 2])
    module = losses.CLCD(2, 4)
    torch.testing.assert_close(module(vectors.double(), labels), module(vectors, labels))


EVERY = {name: (lambda module=module: module) for name, (module, _) in MODULES.items()}
EVERY |= PROXIES | OTHERS
BAD = {
    "empty": (lambda e, x: (e[:0], x[:0]), "have shape"),
    "fewer labels": (lambda e, x: (e, x[:-1]), "labels have shape"),
    "one label": (lambda e, x: (e, x[:, -1]), "labels have shape"),
    "no levels": (lambda e, x: (e, x[:, :0]), "labels have"),
    "floats for labels": (lambda e, x: (e, x + 0.5), "expected integers"),
    "truths for labels": (lambda e, x: (e, x > 0), "expected integers"),
    "ids beyond int64": (
        lambda e, x: (e, torch.full(x.shape, 2**64 - 1, dtype=torch.uint64)), r"2\*\*63"),
    "padding": (lambda e, x: (e, x.index_fill(0, torch.tensor([0, 2]), -1)), "-1"),
    "nan": (lambda e, x: (e * float("nan"), x), "nan or inf"),
    "inf": (lambda e, x: (e * float("inf"), x), "nan or inf"),
    "integers for embeddings": (lambda e, x: (e.long(), x), "expected floats"),
    "one vector": (lambda e, x: (e[0], x), "have shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bad", BAD)
def test_every_loss_refuses_what_does_not_fit_in_one_line(name, bad) -> None:
    change, text = BAD[bad]
    with pytest.raises(ShapeError, match=text) as told:
        EVERY[name]()(*change(*batch(3, size=6, dim=4, dtype=torch.float32)))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", EVERY)
def test_every_loss_takes_half_precision_and_survives_pickle_and_copy(name) -> None:
    embeddings, labels = batch(3, size=6, dim=4, dtype=torch.float32)
    module = EVERY[name]()
    found = module(embeddings.bfloat16(), labels)
    assert found.dtype == torch.float32 and bool(torch.isfinite(found))
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        torch.testing.assert_close(again(embeddings.bfloat16(), labels), found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "chunk"), [(3, None), (5, None), (11, 2), (33, 1), (130, 43)])
def test_equal_embeddings_tie_in_a_batch_of_any_size(dtype, size, chunk) -> None:
    seen = []

    class Seen(losses.RankLoss):
        def per_query(self, scores, levels):
            seen.append(scores.detach())
            return scores.sum(1)

    make = torch.Generator().manual_seed(0)
    for dim in (3, 64, 512):
        few = torch.randn(size // 3, dim, generator=make, dtype=dtype)
        embeddings = few[torch.arange(size) % len(few)]
        Seen(chunk=chunk)(embeddings, torch.zeros(size, 1).long())
        scores = torch.cat(seen)
        assert torch.equal(scores, scores[:, torch.arange(size) % len(few)])
        seen.clear()


@pytest.mark.parametrize("power", [-30, -22, 22, 37])
def test_embeddings_of_any_length_are_their_directions(power) -> None:
    embeddings, labels = batch(dtype=torch.float32)
    far = (embeddings.detach() * 10.0**power).requires_grad_()
    near, found = losses.SupAP()(embeddings, labels), losses.SupAP()(far, labels)
    torch.testing.assert_close(found, near, rtol=1e-4, atol=1e-5)
    (slope,) = torch.autograd.grad(found, far)
    if power < 0:  # the gradient goes with 1 / length
        expected = torch.autograd.grad(near, embeddings)[0]
        torch.testing.assert_close(slope * 10.0**power, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("length", [1.1e-12, 9e-13, 7.2e-13])
def test_an_embedding_just_below_the_least_length_has_unit_length_too(length) -> None:
    unit = unit_vectors(torch.tensor([[0.6 * length, 0.8 * length], [3.0, 4.0]]))
    torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8], [0.6, 0.8]]))


@pytest.mark.parametrize(
    ("dtype", "length"),
    [
        (torch.float32, 1e-44),
        (torch.float64, 1e-310),
        (torch.float64, 1e-200),
        (torch.float64, 1e300),
    ],
)
def test_the_smallest_and_the_largest_embeddings_have_unit_length(dtype, length) -> None:
    unit = unit_vectors(torch.tensor([[length, 0.0], [-length, length]], dtype=dtype))
    assert unit.norm(dim=1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ids": torch.arange(3)}, "ids have shape"),
        ({"ids": torch.arange(12.0)}, "ids are torch.float32; expected integers"),
        ({"ids": torch.arange(12), "ref_ids": torch.arange(3)}, "ids have shape"),
        ({"ref_labels": torch.zeros(12, 2).long()}, "expected both or neither"),
        ({"ref_embeddings": torch.randn(12, 6).double()}, "expected both or neither"),
        (
            {
                "ref_embeddings": torch.randn(3, 6).double(),
                "ref_labels": torch.zeros(3, 2).long(),
                "ids": torch.arange(12),
            },
            "expected both or neither",
        ),
    ],
)
def test_sides_that_do_not_fit_are_refused(given, text) -> None:
    with pytest.raises(ShapeError, match=text):
        losses.SupAP(include_self=False)(*batch(), **given)


def test_an_embedding_of_length_0_has_no_direction_to_learn() -> None:
    embeddings, labels = batch(dtype=torch.float32)
    embeddings = embeddings.detach().index_fill(0, torch.tensor([3]), 0.0).requires_grad_()
    losses.SupAP()(embeddings, labels).backward()
    assert not embeddings.grad[3].any() and 0.0 < embeddings.grad.norm() < 1e3


@pytest.mark.parametrize("name", MODULES)
def test_a_second_derivative_is_refused_rather_than_wrong(name) -> None:
    embeddings, labels = batch()
    loss = MODULES[name][0](embeddings, labels)
    (gradient,) = torch.autograd.grad(loss, embeddings, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("name", MODULES)
def test_losses_are_found_in_inference_mode(name) -> None:
    embeddings, labels = batch()
    expected = MODULES[name][0](embeddings, labels).item()
    with torch.inference_mode():
        assert MODULES[name][0](embeddings, labels).item() == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: losses.Triplet(margin=float("nan")),
        lambda: losses.FastAP(bins=0),
        lambda: losses.SupCon(temperature=0.0),
        lambda: losses.HiMulCon(2, weights=(1.0,)),
        lambda: losses.HiMulCon(2, weights=(1.0, -1.0)),
        lambda: losses.ProxyAnchor(3, 4, scale=-1.0),
        lambda: losses.ArcFace(0, 4),
        lambda: losses.HierarchicalProxies(4, 4, CLASSES, weights=(1.0,)),
        lambda: UpperStep(offset=-1.0),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(make) -> None:
    with pytest.raises(ShapeError):
        make()


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_without_rows_is_refused(chunk) -> None:
    with pytest.raises(ShapeError, match="chunk"):
        losses.SupAP(chunk=chunk)


@pytest.mark.parametrize("include_self", [True, False])
def test_a_batch_of_one_image_a_class_is_warned_of_once(include_self) -> None:
    embeddings = torch.eye(3, requires_grad=True)
    labels, module = torch.tensor([[0], [1], [2]]), losses.SupAP(include_self=include_self)
    with pytest.warns(UserWarning, match="no query of this batch has a positive"):
        found = module(embeddings, labels)
    found.backward()
    assert found.item() == 0.0 and not embeddings.grad.any()
    module(embeddings, labels)  # a second warning would be an error here


@pytest.mark.parametrize(
    "loss",
    [
        losses.Triplet,
        losses.FastAP,
        losses.PooledCalibration,
        losses.XBMContrastive,
        lambda: losses.HiMulCon(1),
    ],
)
def test_a_loss_of_pairs_warns_once_of_a_batch_of_one_image_a_class(loss) -> None:
    module, labels = loss(), torch.tensor([[0], [1], [2]])
    with pytest.warns(UserWarning, match="no query of this batch has a positive"):
        assert module(torch.eye(3), labels).item() < 1e-6
    module(torch.eye(3), labels)  # a second warning would be an error here


def test_half_precision_and_autocast_score_in_float32() -> None:
    embeddings, labels = batch(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = losses.SupHAP(2)(embeddings, labels)
        half = losses.SupHAP(2)(embeddings.bfloat16(), labels)
    assert found.dtype == half.dtype == torch.float32
    torch.testing.assert_close(found, losses.SupHAP(2)(embeddings, labels))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e, x: (e[:0], x[:0]), "shape"),
        (lambda e, x: (e, x[:-1]), "labels have shape"),
        (lambda e, x: (e, x[:, :1]), "num_levels is 2"),
        (lambda e, x: (e * float("nan"), x), "nan or inf"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(change, text) -> None:
    with pytest.raises(ShapeError, match=text):
        losses.SupHAP(2)(*change(*batch()))


def test_a_class_without_proxy_is_refused() -> None:
    embeddings, labels = batch(dtype=torch.float32)
    with pytest.raises(ShapeError, match=r"proxies for 0\.\.2"):
        losses.HAPPIER(2, 3, 6)(embeddings, labels)
