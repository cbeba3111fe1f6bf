"""Shards: class-grouped tar files with an index, and exact P x K batches from them.

Names are loaded when they are used, so that writing shards does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgld.shards.batches import BatchOptions, BatchPlan, Samples, plan_epoch
    from hgld.shards.copy import copy_samples
    from hgld.shards.coverage import Coverage, measure_coverage
    from hgld.shards.foreign import index_shards
    from hgld.shards.index import read_index, read_manifest
    from hgld.shards.load import BatchLoader, ImageLoader
    from hgld.shards.look import count_shards, list_shards, read_sample
    from hgld.shards.read import ShardImages, read_image
    from hgld.shards.verify import verify_shards
    from hgld.shards.write import export_shards

__all__ = [
    "BatchLoader",
    "BatchOptions",
    "BatchPlan",
    "Coverage",
    "ImageLoader",
    "Samples",
    "ShardImages",
    "copy_samples",
    "count_shards",
    "export_shards",
    "index_shards",
    "list_shards",
    "measure_coverage",
    "plan_epoch",
    "read_image",
    "read_index",
    "read_manifest",
    "read_sample",
    "verify_shards",
]

_HOME = {
    "BatchLoader": "load",
    "BatchOptions": "batches",
    "BatchPlan": "batches",
    "Coverage": "coverage",
    "ImageLoader": "load",
    "Samples": "batches",
    "ShardImages": "read",
    "copy_samples": "copy",
    "count_shards": "look",
    "export_shards": "write",
    "index_shards": "foreign",
    "list_shards": "look",
    "measure_coverage": "coverage",
    "plan_epoch": "batches",
    "read_image": "read",
    "read_index": "index",
    "read_manifest": "index",
    "read_sample": "look",
    "verify_shards": "verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
