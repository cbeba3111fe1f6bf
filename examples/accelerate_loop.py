"""Train with Accelerate on exact batches, and resume in the middle of an epoch.

accelerate launch examples/accelerate_loop.py work/quickstart/shards [STATE]

STATE is a folder that main(..., save=STATE) wrote.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from hgld.ranking.losses import HiMulCon
from hgld.shards import BatchLoader, BatchOptions, read_index


def to_input(image):
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255


def main(folder, state=None, steps=6, save=None):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    # The loader gives each process its part of the batch, so it is not prepared.
    loader = BatchLoader(
        folder,
        rows,
        to_input,
        BatchOptions(classes_per_batch=2, images_per_class=2),
        seed=0,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )
    accelerator.register_for_checkpointing(loader)
    if state:
        accelerator.load_state(state)
    criterion, losses = HiMulCon(num_levels=rows.filter(like="level_").shape[1]), []
    while len(losses) < steps:
        for images, labels, _ in loader:
            loss = criterion(model(images.to(accelerator.device)), labels.to(accelerator.device))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    if save:
        accelerator.save_state(save)
    return losses


if __name__ == "__main__":
    for number, loss in enumerate(main(Path(sys.argv[1]), *sys.argv[2:])):
        print(number, loss)
