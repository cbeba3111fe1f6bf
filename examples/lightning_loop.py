"""Train with Lightning on exact batches, log exact metrics, and resume in the middle of an epoch.

python examples/lightning_loop.py work/quickstart/shards [CHECKPOINT]
"""

import sys

import hgld.model  # noqa: F401  first: a CUDA torchvision beside a CPU torch needs its hook

# isort: split
import lightning
import numpy as np
import torch
from torch import nn

from hgld.ranking.losses import HiMulCon
from hgld.ranking.torchmetrics import MutualRetrieval
from hgld.shards import BatchLoader, BatchOptions, ImageLoader, read_index


def to_input(image):
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16))
        self.loss, self.metric, self.losses = HiMulCon(num_levels=3), MutualRetrieval(["H-AP"]), []

    def training_step(self, batch):
        loss = self.loss(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch):
        self.metric.update(nn.functional.normalize(self.net(batch[0])), batch[1])

    def on_validation_epoch_end(self):
        self.log("H-AP", self.metric.compute()["H-AP"])
        self.metric.reset()  # Lightning resets only a metric that is logged as an object

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), 0.1)


def main(folder, checkpoint=None, steps=6):
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    loader = BatchLoader(folder, rows, to_input, BatchOptions(2, 2), seed=0)
    images = ImageLoader(folder, rows, to_input, batch_size=64)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_steps=steps, enable_checkpointing=False, **quiet)
    trainer.fit(Model(), loader, images, ckpt_path=checkpoint)  # has the loader's state, too
    return trainer.lightning_module, trainer


if __name__ == "__main__":
    for number, loss in enumerate(main(*sys.argv[1:])[0].losses):
        print(number, loss)
