"""Shards: class-grouped tar files with an index, and exact P x K batches from them.

Names are loaded when they are used, so that writing shards does not load torch.
"""

from typing import TYPE_CHECKING

from hgld.lazy import lazy_names

if TYPE_CHECKING:
    from hgld.shards.batches import BatchPlan, Coverage, measure_coverage, plan_epoch
    from hgld.shards.contents import count_shards, list_shards, read_sample
    from hgld.shards.files import read_image
    from hgld.shards.foreign import index_shards
    from hgld.shards.image_table import ImageTable
    from hgld.shards.index import read_index, read_manifest
    from hgld.shards.load import BatchLoader, ImageLoader
    from hgld.shards.read import ShardImages
    from hgld.shards.sampling import BatchOptions, Samples
    from hgld.shards.shard import copy_samples
    from hgld.shards.verify import verify_shards
    from hgld.shards.write import export_shards

__all__ = [
    "BatchLoader",
    "BatchOptions",
    "BatchPlan",
    "Coverage",
    "ImageLoader",
    "ImageTable",
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

__getattr__ = lazy_names(
    __name__,
    batches="BatchPlan Coverage measure_coverage plan_epoch",
    foreign="index_shards",
    image_table="ImageTable",
    index="read_index read_manifest",
    load="BatchLoader ImageLoader",
    contents="count_shards list_shards read_sample",
    read="ShardImages",
    sampling="BatchOptions Samples",
    files="read_image",
    verify="verify_shards",
    shard="copy_samples",
    write="export_shards",
)
