"""The loss of RaMBO's detector and VOC's AP, against plain loops over the paper's definitions."""

import runpy
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hgld.errors import InvalidData, ShapeError
from hgld.ranking.blackbox import blackbox_ap
from hgld.ranking.detection import DetectionAP, match_boxes, overlaps, voc_average_precision
from hgld.sources.pascal_voc import TrueBoxes, measure_detections, read_voc


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


@pytest.mark.parametrize("right", [[1, 1, 0], [1, 0]])
def test_more_right_detections_than_true_boxes_are_refused(right) -> None:
    with pytest.raises(ShapeError, match="no more right than true"):
        voc_average_precision(np.array([0.9, 0.8, 0.7]), np.array(right), 1)


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


def test_a_class_without_a_box_changes_no_gradient_of_the_mean() -> None:
    torch.manual_seed(0)
    labels, scores = torch.randint(0, 4, (40,)), torch.randn(40, 3, requires_grad=True)
    many = torch.cat([scores, torch.randn(40, 6)], 1)  # six classes more, none of them there
    found = [
        torch.autograd.grad(DetectionAP(size, mean_weight=1e9)(table, labels), scores)[0]
        for size, table in ((3, scores), (9, many))
    ]
    torch.testing.assert_close(found[1], found[0])


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
        (BOX.format("dog", 2, corners(1, 1, 4, 4)), r"object 1: .*difficult = 2; .*and 0 or 1"),
        ("<object>", r"mismatched tag.*expected VOC's XML"),
    ],
)
def test_a_box_beyond_its_image_is_one_clear_line(box: str, says: str, tmp_path: Path) -> None:
    write_voc(tmp_path, "000001", box)
    with pytest.raises(InvalidData, match=rf"^[^\n]*000001\.xml[^\n]*{says}[^\n]*$"):
        read_voc(tmp_path)


def test_an_image_that_is_listed_twice_is_told(tmp_path: Path) -> None:
    for image in ("000001", "000002", "000001"):
        write_voc(tmp_path, image)
    with pytest.raises(InvalidData, match=r"test\.txt line 3: '000001' again; .*; get the file"):
        read_voc(tmp_path)


def test_an_image_without_its_file_is_told(tmp_path: Path) -> None:
    write_voc(tmp_path, "000001")
    (tmp_path / "Annotations/000001.xml").unlink()
    with pytest.raises(InvalidData, match=r"1\.xml: no such file; .*such as VOCdevkit/VOC2007"):
        read_voc(tmp_path)


@pytest.mark.parametrize(
    ("rule", "dog"), [("2012", 2 / 3 * 0.5 + 0.5), ("2007", (6 + 5 * 2 / 3) / 11)]
)
def test_each_class_has_its_ap_over_all_images(rule: Any, dog: float) -> None:
    """Two dogs in two photos: found at rank 1 and 3; a cat is missed, a difficult one is no cat."""
    box, far = [1.0, 1.0, 10.0, 10.0], [31.0, 1.0, 40.0, 10.0]
    names = np.array(["dog", "dog", "cat", "cat"])
    boxes, hard = np.array([box, box, far, box]), np.array([False, False, False, True])
    truth = TrueBoxes(("a", "b", "c"), np.array([0, 1, 0, 2]), names, boxes, hard)
    images, scores = np.array([1, 2, 0, 2, 1]), np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    classes = np.array(["dog", "dog", "dog", "cat", "cat"])
    found = measure_detections(np.array([box] * 5), scores, classes, images, truth, protocol=rule)
    assert found == {"cat": 0.0, "dog": pytest.approx(dog)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"boxes": np.ones((1, 5))}, r"\(1, 5\).*expected \(N, 4\)"),
        ({"images": np.array([1])}, "images are 1 to 1; expected rows of 1"),
        ({"classes": np.array(["cow"])}, "'cow' is not a class of the split; it has dog"),
        ({"protocol": "2010"}, "protocol is '2010'"),
    ],
)
def test_detections_that_do_not_fit_the_split_are_refused(change: Any, says: str) -> None:
    box, here, dog = np.ones((1, 4)), np.array([0]), np.array(["dog"])
    truth = TrueBoxes(("a",), here, dog, box, np.array([False]))
    given = {"boxes": box, "scores": np.ones(1), "classes": dog, "images": here, "truth": truth}
    with pytest.raises(ShapeError, match=says):
        measure_detections(**(given | change))


@pytest.fixture
def example() -> dict[str, Any]:
    import hgld.model  # noqa: F401  its import hook has to precede torchvision

    return runpy.run_path("examples/detection/faster_rcnn.py")


def test_a_row_of_detection_is_a_command_of_the_example(example: dict[str, Any]) -> None:
    tables = tomllib.loads(Path("pipelines/papers/tables.toml").read_text("utf-8"))["table"]
    commands = [row["command"] for table in tables for row in table["rows"] if "command" in row]
    assert len(commands) == 11
    for script, *words in map(shlex.split, commands):
        assert script == "examples/detection/faster_rcnn.py"
        example["parser"]().parse_args(words)


def write_photo(folder: Path, image: str, box: list[int], name: str, difficult: int = 0) -> None:
    """A black photo of 50 x 40 px with a white box; trainval is test."""
    write_voc(folder, image, BOX.format(name, difficult, corners(*box)))
    (folder / "JPEGImages").mkdir(exist_ok=True)
    photo, (left, top, right, bottom) = np.zeros((40, 50, 3), np.uint8), box
    photo[top - 1 : bottom, left - 1 : right] = 255
    Image.fromarray(photo).save(folder / "JPEGImages" / f"{image}.jpg", quality=100)
    lists = folder / "ImageSets/Main"
    (lists / "trainval.txt").write_text((lists / "test.txt").read_text())


def test_the_example_trains_on_all_folders_and_mirrors_a_box_with_its_photo(
    example: dict[str, Any], tmp_path: Path
) -> None:
    write_photo(tmp_path / "VOC2007", "1", [1, 1, 20, 16], "dog")
    write_photo(tmp_path / "VOC2007", "2", [1, 1, 20, 16], "dog", difficult=1)
    write_photo(tmp_path / "VOC2012", "1", [9, 5, 28, 40], "cat")
    photos, names = example["read_photos"]([tmp_path / "VOC2007", tmp_path / "VOC2012"])
    assert names == ["cat", "dog"]
    assert [labels.tolist() for _, _, labels in photos] == [[2], [1]]
    torch.manual_seed(0)
    lefts = set()
    for _ in range(9):
        image, target = example["take_example"](*photos[1], "cpu")
        left, top, right, bottom = target["boxes"][0].int().tolist()
        inside = image[:, top:bottom, left:right]
        assert inside.min() > 0.9 and inside.sum() > 0.99 * image.sum()
        lefts.add(left)
    assert lefts == {8, 22}


def test_the_example_measures_what_a_model_detects(example: dict[str, Any], tmp_path: Path) -> None:
    """A model that returns the white pixels, as torchvision counts them, is right everywhere."""

    class Model(torch.nn.Module):
        def forward(self, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
            rows, columns = (images[0][0] > 0.5).nonzero().T
            box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            given = {"boxes": torch.stack(box)[None].float(), "scores": torch.ones(1)}
            return [given | {"labels": torch.ones(1, dtype=torch.long)}]

    write_photo(tmp_path, "1", [1, 1, 20, 16], "dog")
    write_photo(tmp_path, "2", [9, 5, 28, 40], "dog")
    truth = read_voc(tmp_path)
    boxes, scores, labels, images = example["detect"](Model(), tmp_path, truth, "cpu")
    assert boxes.tolist() == truth.boxes.tolist()
    names = np.array(["dog"])[labels - 1]
    assert measure_detections(boxes, scores, names, images, truth) == {"dog": 1.0}


def test_the_example_ranks_boxes_by_the_logits_of_the_loss(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.models.detection.roi_heads import RoIHeads

    def best_first(boxes: Any, scores: torch.Tensor, classes: Any, threshold: float) -> Any:
        return scores.argsort(descending=True)

    monkeypatch.setattr(example["box_operators"], "batched_nms", best_first)
    head = RoIHeads(*[None] * 3, 0.5, 0.5, 8, 0.25, None, 0.05, 0.5, 3)  # keeps 3 of an image
    logits = torch.tensor([[9.0, 0.3, 0.1], [-9.0, 0.2, -0.4], [0.0, 5.0, 4.0]])
    boxes = [torch.tensor([[0.0, 0, 8, 8], [2, 2, 9, 9]]), torch.tensor([[1.0, 1, 5, 5]])]
    given = logits, torch.zeros(3, 12), boxes, [(40, 50), (40, 50)]
    found, scores, classes = example["detect_by_logits"](head, *given)
    assert [own.tolist() for own in scores] == [pytest.approx([0.3, 0.2, 0.1]), [5.0, 4.0]]
    assert [own.tolist() for own in classes] == [[1, 1, 2], [1, 2]]
    assert found[0].tolist() == [[0, 0, 8, 8], [2, 2, 9, 9], [0, 0, 8, 8]]


def test_the_example_trains_the_classifier_by_ap_and_the_boxes_as_before(example) -> None:
    heads, before = example["roi_heads"], example["cross_entropy"]
    logits, regression = torch.randn(6, 4), torch.randn(6, 16)
    labels, targets = [torch.tensor([0, 1, 2]), torch.tensor([3, 0, 1])], [torch.randn(3, 4)] * 2
    example["use_ap"](DetectionAP(3))
    try:
        found, boxes = heads.fastrcnn_loss(logits, regression, labels, targets)
    finally:
        heads.fastrcnn_loss = before
    assert found.item() == DetectionAP(3)(logits[:, 1:], torch.cat(labels)).item()
    assert boxes.item() == before(logits, regression, labels, targets)[1].item()
