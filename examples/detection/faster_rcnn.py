"""Train torchvision's Faster R-CNN on Pascal VOC with the AP loss of RaMBO (Rolinek et al. 2020).

python examples/detection/faster_rcnn.py /data/VOCdevkit/VOC2007

It needs torchvision with its compiled operators (the wheel that belongs to the installed torch).
"""

import sys
from pathlib import Path

import torch
from torchvision.io import read_image
from torchvision.models.detection import fasterrcnn_resnet50_fpn, roi_heads

from hgld.ranking.detection import DetectionAP
from hgld.sources.pascal_voc import read_voc

cross_entropy = roi_heads.fastrcnn_loss


def use_ap(criterion):
    """Let the classifier learn by the criterion; the boxes learn as before."""

    def box_losses(logits, regression, labels, targets):
        _, boxes = cross_entropy(logits, regression, labels, targets)
        return criterion(logits[:, 1:], torch.cat(labels)), boxes

    roi_heads.fastrcnn_loss = box_losses


def main(folder, epochs=12, batch=8):
    truth = read_voc(folder, "trainval")
    names = sorted(set(truth.classes.tolist()))
    classes = torch.tensor([1 + names.index(name) for name in truth.classes])
    use_ap(DetectionAP(len(names)))
    model = fasterrcnn_resnet50_fpn(weights=None, num_classes=len(names) + 1).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [9], gamma=0.1)
    with_boxes = torch.from_numpy(truth.image_of).unique()
    for _ in range(epochs):
        for rows in with_boxes[torch.randperm(len(with_boxes))].split(batch):
            own = [torch.from_numpy(truth.image_of == int(row)) for row in rows]
            images = [
                read_image(str(folder / "JPEGImages" / f"{truth.images[row]}.jpg")) / 255
                for row in rows
            ]
            boxes = torch.from_numpy(truth.boxes).float() - torch.tensor([1.0, 1.0, 0.0, 0.0])
            targets = [{"boxes": boxes[rows], "labels": classes[rows]} for rows in own]
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return model


if __name__ == "__main__":
    torch.save(main(Path(sys.argv[1])).state_dict(), "faster-rcnn.pt")
