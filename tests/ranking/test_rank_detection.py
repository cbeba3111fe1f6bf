"""The loss of RaMBO's detector and VOC's AP, against plain loops over the paper's definitions."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from hgld.errors import InvalidData, ShapeError
from hgld.ranking.blackbox import blackbox_ap
from hgld.ranking.detection import DetectionAP, match_boxes, overlaps, voc_average_precision
from hgld.sources.pascal_voc import read_voc


def loop_ap(scores: np.ndarray, right: np.ndarray, positives: int, year: str) -> float:
    """Precision at each recall, one detection after the other."""
    rows = sorted(range(len(scores)), key=lambda row: -scores[row])
    curve, hits, seen = [], 0, 0
    for row in rows:
        if right[row] >= 0:
            seen, hits = seen + 1, hits + int(right[row])
            curve.append((hits / positives, hits / seen))
    best = [max((p for r, p in curve if r >= t - 1e-12), default=0.0) for t in np.arange(11) / 10]
    if year == "2007":
        return sum(best) / 11
    area, last = 0.0, 0.0
    for recall, _ in curve:
        area += (recall - last) * max(p for r, p in curve if r >= recall)
        last = recall
    return area


@pytest.mark.parametrize("year", ["2007", "2012"])
def test_vocs_ap_is_its_loop(year) -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        size = int(random.integers(0, 30))
        scores, right = random.permutation(size) / 7, random.integers(-1, 2, size)
        positives = int((right > 0).sum() + random.integers(1, 9))
        found = voc_average_precision(scores, right, positives, year)
        assert found == pytest.approx(loop_ap(scores, right, positives, year), abs=1e-12)
    assert np.isnan(voc_average_precision(scores, right, 0, year))


def test_a_protocol_that_is_none_is_refused() -> None:
    with pytest.raises(ShapeError, match="protocol is '2010'; expected '2007' or '2012'"):
        voc_average_precision(np.ones(1), np.ones(1), 1, "2010")  # type: ignore[arg-type]


def test_a_box_is_found_once_and_a_difficult_one_neither_found_nor_missed() -> None:
    truth = np.array([[1, 1, 10, 10], [21, 1, 30, 10], [1, 1, 10, 10]])
    truth_images, difficult = np.array([0, 0, 1]), np.array([False, True, False])
    boxes = np.array([[1, 1, 10, 11], [1, 1, 10, 10], [21, 1, 30, 10], [1, 1, 10, 4], [1, 1, 9, 9]])
    images, scores = np.array([0, 0, 0, 1, 2]), np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    found = match_boxes(boxes, scores, images, truth, truth_images, difficult)
    assert found.tolist() == [1, 0, -1, 0, 0]
    exact = np.array([[1, 1, 10, 5]])  # half of the box: 0.5 is enough
    assert overlaps(exact, truth[:1]).item() == 0.5
    assert match_boxes(exact, scores[:1], images[:1], truth, truth_images, difficult) == 1


def test_the_loss_is_the_weighted_mean_of_both_losses() -> None:
    torch.manual_seed(0)
    labels, batches = torch.randint(0, 4, (3, 40)), torch.randn(3, 40, 3)
    loss = DetectionAP(classes=3, lam=0.7, margin=0.1, memory=2)
    for number in range(3):
        scores = batches[number].clone().requires_grad_()
        value = loss(scores, labels[number])
        value.backward()
        order = [number, *range(number)]  # the batch itself, then the earlier ones
        all_scores = torch.cat([batches[i] for i in order])
        right = torch.stack([torch.cat([labels[i] == c for i in order]) for c in (1, 2, 3)])
        own = all_scores[:40].clone().requires_grad_()
        rows = torch.cat([own, all_scores[40:]]).T
        mean = blackbox_ap(rows, right.long(), 0.7, 0.1).mean()
        at_once = blackbox_ap(rows.reshape(1, -1), right.long().reshape(1, -1), 0.7, 0.1)[0]
        expected = (2 * mean + at_once) / 3
        expected.backward()
        assert value.item() == pytest.approx(expected.item(), abs=1e-6)
        assert torch.allclose(scores.grad, own.grad)


def test_classes_without_a_box_are_left_out_of_the_mean() -> None:
    scores, labels = torch.tensor([[0.1, 0.0], [0.9, 0.0]]), torch.tensor([1, 0])
    found = DetectionAP(2, margin=0.0, mean_weight=1e9)(scores, labels)
    assert found.item() == pytest.approx(0.5)


def test_a_detector_learns_to_rank_its_boxes() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(200, 16), torch.randint(0, 4, (200,))
    features[:, :4] += 2 * torch.nn.functional.one_hot(labels, 4)
    layer, loss = torch.nn.Linear(16, 3), DetectionAP(3, memory=0)
    optimizer = torch.optim.Adam(layer.parameters(), 0.02)
    values = []
    for _ in range(60):
        value = loss(layer(features), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.6 * values[0]


@pytest.mark.parametrize(
    ("scores", "labels", "says"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 1]), r"\(2, 3\) for 2 labels; expected \(2, 2\)"),
        (torch.zeros(2, 2), torch.tensor([0, 3]), r"labels are 0 to 3; expected 0 .* to 2"),
    ],
)
def test_wrong_shapes_are_refused(scores, labels, says) -> None:
    with pytest.raises(ShapeError, match=says):
        DetectionAP(2)(scores, labels)


BOX = "<name>{}</name><difficult>{}</difficult><bndbox>{}</bndbox>"


def write_voc(folder: Path, image: str, *objects: str) -> None:
    (folder / "ImageSets/Main").mkdir(parents=True, exist_ok=True)
    (folder / "Annotations").mkdir(exist_ok=True)
    with (folder / "ImageSets/Main/test.txt").open("a") as file:
        file.write(f"{image}\n")
    found = "".join(f"<object>{one}</object>" for one in objects)
    size = "<size><width>353</width><height>500</height><depth>3</depth></size>"
    xml = f"<annotation><filename>{image}.jpg</filename>{size}{found}</annotation>"
    (folder / "Annotations" / f"{image}.xml").write_text(xml)


def corners(*values: object) -> str:
    names = ("xmin", "ymin", "xmax", "ymax")
    return "".join(f"<{n}>{v}</{n}>" for n, v in zip(names, values, strict=True))


def test_the_boxes_of_a_split_are_read(tmp_path: Path) -> None:
    dog = BOX.format("dog", 0, corners(48, 240, 195, 371))
    write_voc(tmp_path, "000001", dog, BOX.format("person", 1, corners(8, 12, 353, 498)))
    write_voc(tmp_path, "000002")
    write_voc(tmp_path, "000004", BOX.format("car", 0, corners(13, 311, "84.5", 362)))
    found = read_voc(tmp_path)
    assert found.images == ("000001", "000002", "000004")
    assert found.image_of.tolist() == [0, 0, 2]
    assert found.classes.tolist() == ["dog", "person", "car"]
    assert found.difficult.tolist() == [False, True, False]
    assert found.boxes.tolist() == [[48, 240, 195, 371], [8, 12, 353, 498], [13, 311, 84.5, 362]]


@pytest.mark.parametrize(
    ("box", "says"),
    [
        (BOX.format("dog", 0, corners(48, 240, 354, 371)), r"object 1: 'dog' .* 1 to 353 and 1"),
        (BOX.format("dog", 0, corners(48, 240, 47, 371)), r"object 1: 'dog' .*correct the file"),
        (BOX.format("dog", 0, corners("x", 240, 47, 371)), r"object 1: 'dog' .*x, 240, 47, 371"),
        (BOX.format("", 0, corners(1, 1, 4, 4)), r"object 1: '' .*expected a name"),
        ("<object>", r"mismatched tag.*expected VOC's XML"),
    ],
)
def test_a_box_beyond_its_image_is_one_clear_line(box: str, says: str, tmp_path: Path) -> None:
    write_voc(tmp_path, "000001", box)
    with pytest.raises(InvalidData, match=rf"^[^\n]*000001\.xml[^\n]*{says}[^\n]*$"):
        read_voc(tmp_path)


def test_an_image_without_its_file_is_told(tmp_path: Path) -> None:
    write_voc(tmp_path, "000001")
    (tmp_path / "Annotations/000001.xml").unlink()
    with pytest.raises(InvalidData, match=r"000001\.xml: no such file; expected the boxes"):
        read_voc(tmp_path)


def test_the_example_trains_the_classifier_by_ap_and_the_boxes_as_before() -> None:
    import hgld.model  # noqa: F401  its import hook has to precede torchvision

    main = runpy.run_path("examples/detection/faster_rcnn.py")
    heads, before = main["roi_heads"], main["cross_entropy"]
    logits, regression = torch.randn(6, 4), torch.randn(6, 16)
    labels, targets = [torch.tensor([0, 1, 2]), torch.tensor([3, 0, 1])], [torch.randn(3, 4)] * 2
    main["use_ap"](DetectionAP(3))
    try:
        found, boxes = heads.fastrcnn_loss(logits, regression, labels, targets)
    finally:
        heads.fastrcnn_loss = before
    assert found.item() == DetectionAP(3)(logits[:, 1:], torch.cat(labels)).item()
    assert boxes.item() == before(logits, regression, labels, targets)[1].item()
