"""Train with the Trainer of transformers on exact batches.

python examples/trainer_loop.py work/quickstart/shards
"""

import sys
from pathlib import Path
from tempfile import gettempdir

import hgld.model  # noqa: F401  first: a CUDA torchvision beside a CPU torch needs its hook

# isort: split
import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from hgld.ranking.losses import HiMulCon
from hgld.shards import BatchLoader, BatchOptions, read_index


def to_input(image):
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255


class RetrievalTrainer(Trainer):
    def __init__(self, loader, criterion, **options):
        super().__init__(**options)
        self.loader, self.criterion, self.losses = loader, criterion, []

    def get_train_dataloader(self):
        return self.loader

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        images, labels, _ = inputs
        loss = self.criterion(model(images), labels)
        self.losses.append(loss.item())
        return loss


def main(folder, steps=6):
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16))
    arguments = TrainingArguments(
        gettempdir(), max_steps=steps, learning_rate=0.1, lr_scheduler_type="constant", optim="sgd",
        max_grad_norm=0.0, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    process = {"rank": arguments.process_index, "world_size": arguments.world_size}
    loader = BatchLoader(folder, rows, to_input, BatchOptions(2, 2), seed=0, **process)
    criterion = HiMulCon(num_levels=rows.filter(like="level_").shape[1])
    trainer = RetrievalTrainer(loader, criterion, model=model, args=arguments)
    trainer.train()
    return trainer.losses


if __name__ == "__main__":
    for number, loss in enumerate(main(Path(sys.argv[1]))):
        print(number, loss)
