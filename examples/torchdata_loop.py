"""Read exact batches through torchdata's StatefulDataLoader, and resume in the middle of an epoch.

python examples/torchdata_loop.py work/quickstart/shards
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

from hgld.ranking.losses import HiMulCon
from hgld.shards import BatchLoader, BatchOptions, read_index


def to_input(image):
    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1) / 255


def main(folder, steps=6, resume_at=None):
    rows = read_index(folder).query("split == 'train'").reset_index(drop=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16))
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    criterion = HiMulCon(num_levels=rows.filter(like="level_").shape[1])
    joined = dist.is_initialized()
    process = {"rank": dist.get_rank() if joined else 0}
    process["world_size"] = dist.get_world_size() if joined else 1

    def new_loader():
        batches = BatchLoader(folder, rows, to_input, BatchOptions(2, 2), seed=0, **process)
        return StatefulDataLoader(batches, batch_size=None)

    loader = new_loader()
    while len(losses) < steps:
        for images, labels, _ in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) in (steps, resume_at):
                break
        if len(losses) == resume_at:
            state, loader = loader.state_dict(), new_loader()
            loader.load_state_dict(state)
    return losses


if __name__ == "__main__":
    for number, loss in enumerate(main(Path(sys.argv[1]))):
        print(number, loss)
