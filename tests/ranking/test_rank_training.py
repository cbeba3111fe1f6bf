"""What training needs around a loss: memory, parts of a batch, baselines, presets."""

import inspect
import itertools
import math
from pathlib import Path

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss, ProxyNCALoss, SupConLoss
from torch import nn

from hgld.errors import ShapeError, UsageError
from hgld.ranking import baselines, losses, presets
from hgld.ranking.memory import MemoryBank
from hgld.ranking.multistage import backward_in_parts
from tests.ranking.ranking_oracles import hi_mul_con_of_authors
from tests.ranks import run_to_end

LABELS = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]])


def images(seed=0, dtype=torch.float64):
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Dropping(nn.Module):
    """A model with all that makes two passes differ: dropout, noise, batch-norm statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 4)

    def forward(self, x):
        x = self.first(x + 0.1 * torch.randn_like(x))
        return self.last(F.dropout(self.norm(x).relu(), 0.4, self.training))


def model_of(kind):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)) if kind else Dropping()
    return model.double()


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_parts_give_the_gradient_of_one_big_batch(size) -> None:
    loss = losses.HAPPIER(2, 4, 4).double()
    model = model_of("plain")
    expected = loss(model(images()), LABELS)
    expected.backward()
    wanted, proxies = gradients(model), loss.proxies.grad.clone()
    model.zero_grad()
    loss.zero_grad()
    found = backward_in_parts(model, images().split(size), lambda e: loss(e, LABELS))
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(loss.proxies.grad, proxies)
    for one, two in zip(gradients(model), wanted, strict=True):
        torch.testing.assert_close(one, two)


def test_dropout_noise_and_batch_norm_are_the_same_in_both_passes() -> None:
    loss, parts = losses.SupHAP(2), images().split(4)
    straight, twice = model_of(None), model_of(None)
    torch.manual_seed(7)
    loss(torch.cat([straight(part) for part in parts]), LABELS).backward()
    after = torch.get_rng_state()
    torch.manual_seed(7)
    backward_in_parts(twice, parts, lambda e: loss(e, LABELS))
    assert torch.equal(torch.get_rng_state(), after)
    for one, two in zip(gradients(straight), gradients(twice), strict=True):
        torch.testing.assert_close(one, two)
    for name, value in straight.state_dict().items():
        torch.testing.assert_close(twice.state_dict()[name], value)


def test_mixed_precision_and_a_scaled_loss() -> None:
    loss, parts = losses.SupHAP(2), images(dtype=torch.float32).split(4)
    plain, scaled = model_of("plain").float(), model_of("plain").float()

    def autocast():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    with autocast():
        embeddings = torch.cat([plain(part) for part in parts])
    loss(embeddings, LABELS).backward()
    backward_in_parts(scaled, parts, lambda e: loss(e, LABELS), lambda x: x * 64, autocast)
    for one, two in zip(gradients(scaled), gradients(plain), strict=True):
        torch.testing.assert_close(one / 64, two, rtol=2e-2, atol=1e-4)


class Gather(torch.autograd.Function):
    """All processes' rows; backward sums what they all send."""

    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        torch.distributed.all_reduce(grad)
        rank = torch.distributed.get_rank()
        return grad.chunk(torch.distributed.get_world_size())[rank]


def one_process(folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = nn.parallel.DistributedDataParallel(model_of("plain"))
    mine = images().chunk(2)[rank]
    loss = losses.SupHAP(2)
    backward_in_parts(model, mine.split(2), lambda e: loss(Gather.apply(e), LABELS))
    if rank == 0:
        torch.save(gradients(model), Path(folder) / "gradients.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_learn_as_one(tmp_path) -> None:
    run_to_end(2, "-c", f"from {__name__} import one_process; one_process({str(tmp_path)!r})")
    model = model_of("plain")
    losses.SupHAP(2)(model(images()), LABELS).backward()
    for one, two in zip(torch.load(tmp_path / "gradients.pt"), gradients(model), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_no_parts_are_refused() -> None:
    with pytest.raises(ShapeError, match="no parts"):
        backward_in_parts(model_of("plain"), [], lambda e: e.sum())


def test_memory_keeps_the_newest_and_gives_the_batch_its_gradient() -> None:
    bank = MemoryBank(size=3, dim=2, num_levels=1)
    for step in range(3):
        batch = torch.full((2, 2), float(step), requires_grad=True)
        found, labels, ids = bank.extend(batch, torch.full((2, 1), step))
    assert found[:, 0].tolist() == [2.0, 2.0, 1.0, 1.0, 0.0]
    assert labels[:, 0].tolist() == [2, 2, 1, 1, 0] and len(bank) == 3
    assert len(set(ids[:2].tolist()) & set(ids[2:].tolist())) == 0
    found.sum().backward()
    assert batch.grad is not None and batch.grad.tolist() == [[1.0, 1.0]] * 2


def test_an_image_that_comes_again_replaces_its_old_embedding() -> None:
    bank = MemoryBank(size=4, dim=1, num_levels=1)
    bank.extend(torch.tensor([[1.0], [2.0]]), torch.tensor([[0], [1]]), torch.tensor([7, 8]))
    found, _, ids = bank.extend(torch.tensor([[3.0]]), torch.tensor([[1]]), torch.tensor([8]))
    assert found[:, 0].tolist() == [3.0, 1.0] and ids.tolist() == [8, 7]


@pytest.mark.parametrize("ids", [False, True])
def test_memory_fills_whatever_the_sizes_of_the_batches(ids) -> None:
    bank, found = MemoryBank(size=100, dim=1, num_levels=1), []
    for step, size in enumerate((4, 2, 4, 4, 6)):
        own = 10 * step + torch.arange(size) if ids else None
        found.append(len(bank.extend(torch.ones(size, 1), torch.zeros(size, 1).long(), own)[0]))
    assert found == [4, 6, 10, 14, 20]


def test_a_batch_without_ids_leaves_those_of_the_memory() -> None:
    bank = MemoryBank(size=9, dim=1, num_levels=1)
    bank.extend(torch.ones(2, 1), torch.zeros(2, 1).long(), torch.tensor([10, 11]))
    bank.extend(torch.ones(1, 1), torch.zeros(1, 1).long())
    assert bank.ids[1:].tolist() == [10, 11]


@pytest.mark.parametrize(
    "given",
    [
        (torch.ones(2), torch.zeros(2, 1).long()),
        (torch.ones(2, 1), torch.zeros(2, 1)),
        (torch.ones(2, 1), torch.zeros(2, 1).long(), torch.tensor([0.1, 0.2])),
    ],
)
def test_a_memory_refuses_what_it_would_cut(given) -> None:
    with pytest.raises(ShapeError):
        MemoryBank(size=4, dim=1, num_levels=1).extend(*given)


def test_a_loaded_memory_keeps_its_own_precision_and_width() -> None:
    bank = MemoryBank(size=4, dim=1, num_levels=1)
    bank.extend(torch.ones(2, 1), torch.zeros(2, 1).long())
    other = MemoryBank(size=4, dim=1, num_levels=1).double()
    other.load_state_dict(bank.state_dict())
    assert other.embeddings.dtype == torch.float64 and len(other) == 2
    with pytest.raises(RuntimeError, match="size mismatch"):
        MemoryBank(size=4, dim=3, num_levels=1).load_state_dict(bank.state_dict())


def test_memory_is_saved_and_loaded_as_full_as_it_is() -> None:
    bank, other = (MemoryBank(size=4, dim=1, num_levels=1) for _ in range(2))
    bank.extend(torch.tensor([[1.0], [2.0]]), torch.tensor([[0], [1]]))
    other.load_state_dict(bank.state_dict())
    assert other.embeddings.tolist() == [[1.0], [2.0]]


def test_a_loss_over_a_memory_is_the_loss_over_all_at_once() -> None:
    bank = MemoryBank(size=8, dim=5, num_levels=2).double()
    bank.extend(images(1), LABELS)
    batch = images(2)
    references, labels, _ = bank.extend(batch, LABELS)
    assert len(references) == 16 and torch.equal(references[8:], images(1))
    found = losses.SupHAP(2)(batch, LABELS, references, labels)
    assert 0.0 < found.item() < 1.0


def test_norm_softmax_is_the_librarys() -> None:
    own, other = baselines.NormSoftmax(4, 5), NormalizedSoftmaxLoss(4, 5, temperature=0.05)
    other.W.data = own.proxies.data.T.clone()
    batch = images(dtype=torch.float32)
    found = own(batch, LABELS)
    torch.testing.assert_close(found, other(F.normalize(batch, dim=1), LABELS[:, 1]))


def test_proxy_nca_is_the_librarys() -> None:
    own, other = baselines.ProxyNCA(4, 5), ProxyNCALoss(4, 5, softmax_scale=9)
    other.proxies.data = own.proxies.data.clone()
    batch = images(dtype=torch.float32)
    torch.testing.assert_close(own(batch, LABELS), other(batch, LABELS[:, 1]))


def test_proxy_nca_is_its_loop() -> None:
    torch.manual_seed(0)
    loss = baselines.ProxyNCA(4, 5).double()
    unit, proxies = F.normalize(images(), dim=1), F.normalize(loss.proxies.detach(), dim=1)
    total = 0.0
    for vector, own in zip(unit, LABELS[:, 1].tolist(), strict=True):
        shares = [math.exp(-9.0 * float((vector - proxy).square().sum())) for proxy in proxies]
        total -= math.log(shares[own] / sum(shares))
    assert loss(images(), LABELS).item() == pytest.approx(total / 8, abs=1e-9)


def test_triplets_by_hand() -> None:
    # anchor e0 and its positive at 60 degrees (cos 0.5); negative e1 at 30 degrees from that one
    half = torch.tensor([[1.0, 0.0], [0.5, 0.75**0.5], [0.0, 1.0]])
    labels = torch.tensor([[0], [0], [1]])
    # (a, p, n): (0, 1, 2): 0 - 0.5 + 0.05 < 0; (1, 0, 2): 0.866 - 0.5 + 0.05
    found = baselines.Triplet(0.05)(half, labels)
    assert found.item() == pytest.approx(0.75**0.5 - 0.45, abs=1e-6)


@pytest.mark.parametrize("mining", ["all", "semi-hard"])
def test_mined_triplets_are_those_of_a_loop(mining: str) -> None:
    batch = F.normalize(images(), dim=1)
    cosines, classes = batch @ batch.T, LABELS[:, 1].tolist()
    violations = [
        float(cosines[a, n] - cosines[a, p]) + 0.4
        for a, p, n in itertools.permutations(range(8), 3)
        if classes[a] == classes[p] != classes[n]
        and cosines[a, n] - cosines[a, p] + 0.4 > 0
        and (mining == "all" or cosines[a, n] < cosines[a, p])
    ]
    found = baselines.Triplet(0.4, mining)(images(), LABELS)
    assert violations
    assert found.item() == pytest.approx(sum(violations) / len(violations))


def test_fast_ap_is_zero_for_perfect_embeddings() -> None:
    labels = torch.tensor([[0], [0], [1], [1]])
    assert baselines.FastAP()(torch.eye(2)[[0, 0, 1, 1]], labels).item() == pytest.approx(0.0)


@pytest.mark.parametrize("bins", [4, 10])
def test_fast_ap_is_its_loop_over_histograms(bins) -> None:
    unit, classes = F.normalize(images(), dim=1).tolist(), [0, 0, 0, 1, 1, 2, 2, 3]
    width, losses_of = 4.0 / bins, []
    for i in range(7):  # the last image has no positive
        near, every, total, positives = 0.0, 0.0, 0.0, classes.count(classes[i]) - 1
        for edge in range(bins + 1):
            in_bin = {True: 0.0, False: 0.0}
            for j in set(range(8)) - {i}:
                squared = sum((a - b) ** 2 for a, b in zip(unit[i], unit[j], strict=True))
                share = max(0.0, 1.0 - abs(squared - edge * width) / width)
                in_bin[classes[i] == classes[j]] += share
            near, every = near + in_bin[True], every + in_bin[True] + in_bin[False]
            total += in_bin[True] * near / every if in_bin[True] else 0.0
        losses_of.append(1.0 - total / positives)
    found = baselines.FastAP(bins)(images(), torch.tensor(classes)[:, None])
    assert found.item() == pytest.approx(sum(losses_of) / 7, abs=1e-12)


def test_sup_con_is_the_librarys_but_also_learns_from_a_batch_of_one_class() -> None:
    batch = images()
    found = losses.SupCon()(batch, LABELS)
    torch.testing.assert_close(found, SupConLoss()(batch, LABELS[:, 1]))
    alike = torch.zeros(8, 1, dtype=torch.long)
    assert losses.SupCon()(batch, alike) > 1.0 and SupConLoss()(batch, alike[:, 0]) == 0.0


@pytest.mark.parametrize("constraint", [False, True])
def test_hi_mul_con_is_its_loop(constraint) -> None:
    batch, weights, t = F.normalize(images(), dim=1), (0.5, 2.0), 0.3
    cosines = (batch @ batch.T).tolist()

    def pair(i, p):
        others = sum(math.exp(cosines[i][a] / t) for a in range(8) if a != i)
        return -math.log(math.exp(cosines[i][p] / t) / others)

    expected, worst = 0.0, -math.inf
    for level in (2, 1):
        pairs = {
            i: [p for p in range(8) if p != i and bool((LABELS[i] == LABELS[p])[:level].all())]
            for i in range(8)
        }
        floor = worst if constraint else -math.inf
        means = [sum(max(pair(i, p), floor) for p in of) / len(of) for i, of in pairs.items()]
        expected += weights[level - 1] * sum(means) / len(means) / 2
        worst = max(pair(i, p) for i, of in pairs.items() for p in of)
    found = losses.HiMulCon(2, weights, t, constraint)(images(), LABELS)
    assert found.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_hi_mul_con_of_senseless_weights_is_refused(weight) -> None:
    with pytest.raises(ShapeError, match="weight is"):
        losses.hi_mul_con(torch.zeros(1, 2), torch.tensor([[1, 0]]), (weight,))


def test_hi_mul_con_differs_from_its_authors_code_as_its_docstring_says() -> None:
    unit, t, first = F.normalize(images(), dim=1), 0.3, [0, 2, 4, 6]
    given = (unit @ unit.T).tolist(), LABELS.tolist(), t
    fine, coarse = hi_mul_con_of_authors(*given, constraint=False)

    def of_level(level, rows, constraint=False):
        weights = (1.0, 0.0) if level == 1 else (0.0, 1.0)
        return 2 * losses.HiMulCon(2, weights, t, constraint)(images()[rows], LABELS[rows]).item()

    assert losses.HiMulCon(2).weights == pytest.approx((2**0.5, 2.0))
    assert of_level(2, range(8)) == pytest.approx(fine, abs=1e-12)
    assert of_level(1, first) == pytest.approx(coarse, abs=1e-12)  # one image of a class
    assert of_level(1, range(8)) != pytest.approx(coarse, abs=0.1)
    bounded = hi_mul_con_of_authors(*given, constraint=True)
    assert bounded == [fine, max(fine, coarse)]  # by means, not by pairs
    assert of_level(1, range(8), constraint=True) > bounded[1] + 0.1


def test_hi_mul_con_of_one_level_is_sup_con() -> None:
    found = losses.HiMulCon(1, weights=(1.0,), temperature=0.1)(images(), LABELS[:, :1])
    torch.testing.assert_close(found, losses.SupCon()(images(), LABELS[:, :1]))


def face_of(name, cosines, own):
    """The logits of a margin loss, class by class."""
    logits = [4.0 * cosine for cosine in cosines]
    angle = math.acos(cosines[own]) + 0.5
    arc = math.cos(angle) if angle <= math.pi else cosines[own] - 0.5 * math.sin(0.5)
    logits[own] = 4.0 * (cosines[own] - 0.35 if name == "CosFace" else arc)
    return logits


@pytest.mark.parametrize("name", ["ArcFace", "CosFace", "SubCenterArcFace"])
def test_a_loss_of_the_arcface_family_is_its_loop(name) -> None:
    torch.manual_seed(0)
    loss = getattr(losses, name)(4, 5, scale=4.0).double()
    (vectors,) = loss.parameters()  # (D, C K)
    cosines = F.normalize(images(), dim=1) @ F.normalize(vectors, dim=0)
    total = 0.0
    for row, own in zip(
        cosines.view(8, 4, -1).amax(2).tolist(), LABELS[:, 1].tolist(), strict=True
    ):
        logits = face_of(name, row, own)
        total += math.log(sum(map(math.exp, logits))) - logits[own]
    assert loss(images(), LABELS).item() == pytest.approx(total / 8, abs=1e-9)


def test_proxy_anchor_is_its_loop() -> None:
    torch.manual_seed(0)
    loss = losses.ProxyAnchor(6, 5, margin=0.2, scale=3.0).double()  # two classes have no image
    (proxies,) = loss.parameters()
    cosines = (F.normalize(images(), dim=1) @ F.normalize(proxies, dim=1).T).T.tolist()
    near = far = 0.0
    for proxy, row in enumerate(cosines):
        own = [s for s, x in zip(row, LABELS[:, 1], strict=True) if x == proxy]
        other = [s for s, x in zip(row, LABELS[:, 1], strict=True) if x != proxy]
        near += math.log(1.0 + sum(math.exp(-3.0 * (s - 0.2)) for s in own))
        far += math.log(1.0 + sum(math.exp(3.0 * (s + 0.2)) for s in other))
    assert loss(images(), LABELS).item() == pytest.approx(near / 4 + far / 6, abs=1e-9)


def test_hierarchical_proxies_are_a_softmax_over_the_means_of_each_level() -> None:
    torch.manual_seed(0)
    paths = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 3]])
    loss = losses.HierarchicalProxies(4, 5, paths, weights=(0.5, 2.0), eta=0.2).double()
    fine = F.normalize(loss.proxies, dim=1)
    coarse = torch.stack([fine[:2].mean(0), fine[2:].mean(0)])
    parts = [
        losses.proxy_calibration(images(), LABELS[:, level], proxies, eta=0.2)
        for level, proxies in enumerate((coarse, fine))
    ]
    torch.testing.assert_close(loss(images(), LABELS), 0.5 * parts[0] + 2.0 * parts[1])
    with pytest.raises(ShapeError, match="expected the same path"):
        loss(images(), LABELS * torch.tensor([0, 1]))


def test_hierarchical_proxies_are_their_loop() -> None:
    torch.manual_seed(1)
    paths = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 3]])
    loss = losses.HierarchicalProxies(4, 5, paths, weights=(0.5, 2.0), eta=0.2).double()
    fine = F.normalize(loss.proxies, dim=1).tolist()
    mean = [[sum(pair) / 2 for pair in zip(a, b, strict=True)] for a, b in (fine[:2], fine[2:])]
    total = 0.0
    for vector, path in zip(F.normalize(images(), dim=1).tolist(), LABELS.tolist(), strict=True):
        for level, proxies, weight in ((0, mean, 0.5), (1, fine, 2.0)):
            products = [sum(a * b for a, b in zip(vector, p, strict=True)) for p in proxies]
            cosines = [x / math.hypot(*p) for x, p in zip(products, proxies, strict=True)]
            exps = [math.exp(cosine / 0.2) for cosine in cosines]
            total -= weight * math.log(exps[path[level]] / sum(exps)) / 8
    assert loss(images(), LABELS).item() == pytest.approx(total, abs=1e-12)


def test_a_level_sum_gives_each_level_its_own_labels() -> None:
    torch.manual_seed(0)
    parts = [baselines.NormSoftmax(2, 5), baselines.NormSoftmax(4, 5)]
    batch = images(dtype=torch.float32)
    found = baselines.LevelSum(parts)(batch, LABELS)
    torch.testing.assert_close(found, parts[0](batch, LABELS[:, :1]) + parts[1](batch, LABELS))


def test_every_value_of_a_preset_says_where_it_stands() -> None:
    for preset in presets.PRESETS.values():
        values = {f"step.{name}" for name in ("tau", "rho", "delta", "start", "offset")}
        values |= {"step.tie"} if preset.step.tie is not None else set()
        values |= set(vars(preset)) - {"step", "sources", "bounds", "others"}
        values |= {f"{loss}.{name}" for loss, found in preset.others.items() for name in found}
        assert set(preset.sources) == values


def test_the_papers_preset_is_the_losses_default() -> None:
    paper, loss = presets.preset("paper"), losses.HAPPIER(2, 4, 4)
    assert (loss.lam, loss.eta, loss.rank.alpha) == (paper.lam, paper.eta, paper.alpha)
    assert loss.rank.step in (None, paper.step)
    assert losses.SupRecall().ks == paper.ks


@pytest.mark.parametrize("name", presets.OTHERS)
def test_what_is_compared_with_has_its_published_numbers_by_default(name) -> None:
    parameters = inspect.signature(getattr(losses, name)).parameters
    found = {option: parameters[option].default for option in presets.OTHERS[name]}
    assert found == presets.OTHERS[name]


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match="suprank_sop"):
        presets.preset("sop")
