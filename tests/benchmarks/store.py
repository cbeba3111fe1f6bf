"""Batches a second from an object store that answers after 20 ms, against webdataset.

An S3 server (moto) and a proxy that delays each request have processes of their own. All readers
load one epoch of the same objects in one process, decode the photos and put 32 of them together.
The ways run in turns; the fastest round of each counts.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

import boto3
import numpy as np
import torch
from PIL import Image

from hgld.images import decode_rgb
from hgld.shards import BatchLoader, BatchOptions, ImageLoader, read_index
from hgld.storage import RemoteFolder
from tests.benchmarks.meters import Row
from tests.benchmarks.shards import make_source, webdataset_of, write_shards
from tests.object_store import make_bucket, proxy_to, reach, serve_s3

ROUND_TRIP_S = 0.02
ROUNDS = 2
BATCH = BatchOptions(classes_per_batch=8, images_per_class=4)
IN_SHARDS = BatchOptions(classes_per_batch=8, images_per_class=4, order="shards")


def rows(quick: bool = False) -> list[Row]:
    """Batches a second of both readers and webdataset, and their ratios."""
    found = measure(3000 if quick else 6000)
    at = "20 ms away"
    table = [Row(f"{name}, {at}", value, "batches/s") for name, value in found.items()]
    ratios = [
        ("stream", "webdataset", 0.9),
        ("indexed, empty cache", "webdataset", 0.6),
        ("indexed, full cache", "indexed, local", 0.7),
        ("every image once", "webdataset", 0.9),
    ]
    # Short epochs measure the start.
    return table + [
        Row(f"  {name}, of {other}", found[name] / found[other], "x", None if quick else least)
        for name, other, least in ratios
    ]


def measure(samples: int) -> dict[str, float]:
    """Batches a second of each way to read one epoch."""
    with tempfile.TemporaryDirectory() as name, serve_s3() as endpoint:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", samples))
        make_bucket(endpoint, "shards")
        with delayed(endpoint) as address:
            os.environ.update(reach(address))
            there = RemoteFolder("s3://shards/set")
            for path in shards.iterdir():
                there.upload(path, path.name)
            index = read_index(there.url)
            client = boto3.client("s3")
            place = [{"Bucket": "shards", "Key": f"set/{s}"} for s in index["shard"].unique()]
            urls = [client.generate_presigned_url("get_object", Params=p) for p in place]

            def loader(options: BatchOptions, reader: Any, at: Any = there.url) -> BatchLoader:
                return BatchLoader(at, index, to_tensor, options, seed=0, reader=reader)

            for options in (BATCH, IN_SHARDS):  # compiles what the planning needs
                speed(lambda o=options: loader(o, "indexed", shards))  # type: ignore[misc]
            ways: dict[str, Callable[[], Any]] = {
                "indexed, local": lambda: loader(BATCH, "indexed", shards),
                "webdataset": lambda: batches_of(webdataset_of(urls)),
                "indexed, empty cache": lambda: loader(BATCH, "indexed"),
                "indexed, full cache": lambda: loader(BATCH, "indexed"),
                "stream": lambda: loader(IN_SHARDS, "stream"),
                "every image once": lambda: ImageLoader(there.url, index, to_tensor, batch_size=32),
            }
            best = dict.fromkeys(ways, 0.0)
            for number in range(ROUNDS):
                os.environ["HGLD_CACHE"] = str(folder / f"cache {number}")
                best = {way: max(best[way], speed(make)) for way, make in ways.items()}
            return best


def speed(make: Callable[[], Any]) -> float:
    """Batches of 32 images a second, over an epoch."""
    start = perf_counter()
    images = sum(len(batch[0]) for batch in make())
    return images / 32 / (perf_counter() - start)


def to_tensor(image: Image.Image) -> torch.Tensor:
    """The bytes of a photo."""
    return torch.from_numpy(np.asarray(image).copy())


def batches_of(samples: Any) -> Iterator[tuple[torch.Tensor]]:
    """Batches of webdataset's samples, decoded as the other readers decode."""
    held = []
    for sample in samples:
        held.append(to_tensor(decode_rgb(sample["jpg"])))
        if len(held) == 32:
            yield (torch.stack(held),)
            held = []


@contextmanager
def delayed(endpoint: str) -> Iterator[str]:
    """Address of a proxy, in a process of its own, that adds the round trip to each request."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve, args=(endpoint, there), daemon=True)
    process.start()
    yield here.recv()
    process.kill()


def _serve(endpoint: str, connection: Connection) -> None:
    with proxy_to(endpoint) as proxy:
        proxy.delay_s = ROUND_TRIP_S
        connection.send(proxy.address)
        Event().wait()
