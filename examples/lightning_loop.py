"""Train with Lightning, resumably: python examples/lightning_loop.py SHARDS [CHECKPOINT]."""
# ruff: isort: skip_file

import sys
from hgld.ranking.losses import HiMulCon
from hgld.ranking.torchmetrics import MutualRetrieval  # first: torchvision may need its hook
from hgld.shards import BatchLoader, BatchOptions, ImageLoader, read_index
import lightning
import numpy as np
import torch
from torch import nn


def to_input(image):
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255


class Model(lightning.LightningModule):
    def __init__(self, *images):
        super().__init__()
        self.images, self.metric, self.losses = images, MutualRetrieval(["H-AP"]), []
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16))

    def train_dataloader(self):  # Lightning saves and restores its state with a checkpoint
        process = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        return BatchLoader(*self.images, BatchOptions(2, 2), seed=0, **process)

    def val_dataloader(self):
        process = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        return ImageLoader(*self.images, batch_size=64, **process)

    def training_step(self, batch):
        loss = HiMulCon(num_levels=batch[1].shape[1])(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch):
        self.metric.update(nn.functional.normalize(self.net(batch[0])), batch[1])

    def on_validation_epoch_end(self):  # the metric is one of all images, not a mean of steps
        self.log_dict(self.metric.compute(), prog_bar=True)
        self.metric.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), 0.1)


def main(folder, checkpoint=None, steps=6, **options):
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    options |= {"logger": False, "enable_checkpointing": False}
    options |= {"val_check_interval": 2, "check_val_every_n_epoch": None}  # within the epoch, too
    trainer, model = lightning.Trainer(max_steps=steps, **options), Model(folder, rows, to_input)
    trainer.fit(model, ckpt_path=checkpoint)
    return model, trainer


if __name__ == "__main__":
    for number, loss in enumerate(main(*sys.argv[1:])[0].losses):
        print(number, loss)
