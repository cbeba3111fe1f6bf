"""Train torchvision's Faster R-CNN on Pascal VOC with the AP loss of RaMBO, and measure AP50.

    python examples/detection/faster_rcnn.py VOCdevkit/VOC2007 VOCdevkit/VOC2012

Trains on trainval of all folders, tests on test of the first one. It needs torchvision with its
compiled operators (the wheel that belongs to the installed torch), and its weights of ImageNet.

Rolinek et al. (2020, section 5.2) give 12 epochs of batches of 8 and the rate 0.1, a tenth of it
after 9. They do not give, and here are: photos of 600 to 1,000 px, flips, momentum 0.9, weight
decay 1e-4, and no difficult boxes in training.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.models.detection import FasterRCNN, roi_heads
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import boxes as box_operators
from torchvision.transforms.functional import pil_to_tensor

from hgld.ranking.detection import DetectionAP
from hgld.sources.pascal_voc import TrueBoxes, measure_detections, read_voc

cross_entropy = roi_heads.fastrcnn_loss
FIRST_PIXEL = torch.tensor([1.0, 1.0, 0.0, 0.0])  # VOC counts from 1, with both corners inside


def use_ap(criterion):
    """Let the classifier learn by the criterion; the boxes learn as before."""

    def box_losses(logits, regression, labels, targets):
        _, boxes = cross_entropy(logits, regression, labels, targets)
        return criterion(logits[:, 1:], torch.cat(labels)), boxes

    roi_heads.fastrcnn_loss = box_losses


def detect_by_logits(head, logits, regression, proposals, shapes):
    """Keep the best boxes of each image by the scores that the AP loss ranks.

    torchvision takes the softmax with the background, whose logit has no part in that loss.
    """
    sizes, found = [len(boxes) for boxes in proposals], ([], [], [])
    decoded = head.box_coder.decode(regression, proposals)[:, 1:]  # (N, C, 4)
    for boxes, scores, shape in zip(
        decoded.split(sizes), logits[:, 1:].split(sizes), shapes, strict=True
    ):
        classes = torch.arange(1, logits.shape[1], device=logits.device).repeat(len(boxes))
        boxes = box_operators.clip_boxes_to_image(boxes.flatten(0, 1), shape)
        large = box_operators.remove_small_boxes(boxes, min_size=1e-2)
        given = boxes[large], scores.flatten()[large], classes[large]
        kept = box_operators.batched_nms(*given, head.nms_thresh)[: head.detections_per_img]
        for all_of, own in zip(found, given, strict=True):
            all_of.append(own[kept])
    return found


def read_photos(folders):
    """Return the file, boxes and classes of each photo with a box, and the names of the classes."""
    read = [(folder, read_voc(folder, "trainval")) for folder in folders]
    names = sorted({name for _, truth in read for name in truth.classes.tolist()})
    photos = []
    for folder, truth in read:
        for row in np.unique(truth.image_of[~truth.difficult]):
            own = (truth.image_of == row) & ~truth.difficult
            labels = [1 + names.index(name) for name in truth.classes[own]]
            photos.append((file_of(folder, truth, row), truth.boxes[own], torch.tensor(labels)))
    return photos, names


def file_of(folder, truth, row):
    return folder / "JPEGImages" / f"{truth.images[row]}.jpg"


def read_image(file, device):
    return pil_to_tensor(Image.open(file).convert("RGB")).to(device) / 255


def take_example(file, boxes, labels, device):
    """Read a photo and its boxes, mirrored in one case of two."""
    image, boxes = read_image(file, device), torch.from_numpy(boxes).float() - FIRST_PIXEL
    if torch.rand(()) < 0.5:
        image, boxes = image.flip(-1), boxes[:, [2, 1, 0, 3]]
        boxes[:, [0, 2]] = image.shape[-1] - boxes[:, [0, 2]]
    return image, {"boxes": boxes.to(device), "labels": labels.to(device)}


def train(model, photos, options):
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=options.lr, momentum=0.9, weight_decay=1e-4)
    milestones = [round(0.75 * options.epochs)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=0.1)
    model.train()
    for _ in range(options.epochs):
        for rows in torch.randperm(len(photos)).split(options.batch):
            images, targets = zip(
                *(take_example(*photos[row], options.device) for row in rows), strict=True
            )
            loss = sum(model(list(images), list(targets)).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


@torch.inference_mode()
def detect(model, folder, truth: TrueBoxes, device):
    """Return the boxes in VOC's pixels, the scores, class numbers and image rows of all photos."""
    model.eval()
    found = []
    for row in range(len(truth.images)):
        own = model([read_image(file_of(folder, truth, row), device)])[0]
        boxes, scores, labels = (own[name].cpu() for name in ("boxes", "scores", "labels"))
        found.append((boxes + FIRST_PIXEL, scores, labels, torch.full_like(labels, row)))
    return [torch.cat(parts).numpy() for parts in zip(*found, strict=True)]


def parser():
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    given.add_argument("--loss", choices=["ap", "cross-entropy"], default="ap")
    given.add_argument("--lam", type=float, default=0.5, help="lambda of Algorithm 1")
    given.add_argument("--margin", type=float, default=0.15, help="margin of section 4.4")
    given.add_argument("--memory", type=int, default=7, help="number of earlier batches kept")
    given.add_argument("--backbone", choices=["resnet50", "resnet101"], default="resnet50")
    given.add_argument("--weights", default="IMAGENET1K_V1", help="torchvision's; none: random")
    given.add_argument("--epochs", type=int, default=12)
    given.add_argument("--batch", type=int, default=8)
    given.add_argument("--lr", type=float, default=0.1)
    given.add_argument("--short-side", type=int, default=600, help="of the photos, in px")
    given.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given.add_argument("--out", type=Path, default=Path("faster-rcnn.pt"))
    return given


def main(arguments=None):
    options = parser().parse_args(arguments)
    photos, names = read_photos(options.folders)
    truth = read_voc(options.folders[0], "test")
    weights = None if options.weights == "none" else options.weights
    network = resnet_fpn_backbone(backbone_name=options.backbone, weights=weights)
    size = {"min_size": options.short_side, "max_size": options.short_side * 5 // 3}
    model = FasterRCNN(network, num_classes=len(names) + 1, **size).to(options.device)
    if options.loss == "ap":
        use_ap(DetectionAP(len(names), options.lam, options.margin, options.memory))
        model.roi_heads.postprocess_detections = partial(detect_by_logits, model.roi_heads)
    train(model, photos, options)
    torch.save(model.state_dict(), options.out)
    boxes, scores, labels, images = detect(model, options.folders[0], truth, options.device)
    given = boxes, scores, np.array(names)[labels - 1], images, truth
    found = {rule: measure_detections(*given, protocol=rule) for rule in ("2007", "2012")}
    for name in found["2007"]:
        print(f"{name:12}", *(f"{100 * found[rule][name]:6.1f}" for rule in found))
    print(f"{'AP50':12}", *(f"{100 * np.nanmean([*aps.values()]):6.1f}" for aps in found.values()))


if __name__ == "__main__":
    main()
