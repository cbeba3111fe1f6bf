"""Turns "instance of" values into unit vectors, so that near meanings lie near each other.

Each value is put into a sentence ("A picture of a church building"), as the encoders were trained
on sentences. The rows are sorted, the batches fixed, one thread computes and the numbers are
rounded: the same values give the same bytes on one machine, also under load.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch

from hgld.artifacts import Vectors
from hgld.config import EmbedOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.clean import value_keys
from hgld.model import load_text_encoder
from hgld.tasks import track

__all__ = ["embed_values"]

LABEL = "{label}"
DECIMALS = 6  # float32 has seven digits, and the last one depends on the batch


def embed_values(values: pd.DataFrame, *, options: EmbedOptions, context: StageContext) -> Vectors:
    """Embed each value's label, put into the prompt.

    Args:
        values: one row a value: class_id, instance_of.
        options: encoder, prompt, batch_size, device.
        context: not used; every stage gets it.

    Returns:
        One unit vector for each value, by value key, sorted; no value is dropped.

    Raises:
        InvalidData: the table of values is empty.
        MissingWeights: the encoder's weights are neither here nor within reach.
        UsageError: the prompt has no place for the label.
    """
    if LABEL not in options.prompt:
        raise UsageError(f"embed.prompt {options.prompt!r} has no {LABEL} to put the value in")
    if values.empty:
        raise InvalidData("values.csv has no rows, so there is nothing to embed; see clean_dropped")
    table = values.assign(key=value_keys(values)).sort_values("key", kind="stable")
    texts = [options.prompt.replace(LABEL, label) for label in table["instance_of"]]
    with _one_thread():
        vectors, made_by = _embed(texts, options)
    return Vectors(table["key"].tolist(), vectors, {**made_by, "prompt": options.prompt})


def _embed(texts: list[str], options: EmbedOptions) -> tuple[np.ndarray, dict[str, str]]:
    encoder = load_text_encoder(options.encoder, options.device)
    starts = range(0, len(texts), options.batch_size)
    batches = [
        encoder.encode(texts[start : start + options.batch_size])
        for start in track(starts, "Embedding values", len(starts))
    ]
    return np.concatenate(batches).round(DECIMALS), encoder.made_by


@contextmanager
def _one_thread() -> Iterator[None]:
    """More threads may split a sum in another way and change its last digit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
