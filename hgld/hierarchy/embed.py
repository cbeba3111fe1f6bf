"""Embed "instance of" values as unit vectors, so that similar meanings have similar vectors.

Each value is put into a sentence ("A picture of a church building"), as the encoders were trained
on sentences. The rows are sorted, the batches fixed, one thread computes and the numbers are
rounded: the same values give the same bytes on one machine, also under load.

The taxonomy's texts are embedded beside them, so that values can be compared with supercategories
before the first decision. An edited taxonomy embeds only its own texts again.
"""

import json
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pandas as pd
import torch

from hgld.artifacts import VectorFile, Vectors, records
from hgld.config import EmbedOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.unread_labels import find_unread
from hgld.model import load_text_encoder
from hgld.tasks import say, track
from hgld.words import count_text, single_blanks, some_of

LABEL = "{label}"
DECIMALS = 6  # float32 has seven digits, and the last one depends on the batch


def embed_texts(
    values: pd.DataFrame, taxonomy: pd.DataFrame, *, options: EmbedOptions, context: StageContext
) -> tuple[Vectors, Vectors]:
    """Embed the values, and the names and definitions of the supercategories.

    Vectors of the same values by the same weights are taken from ``context.state``, so that an edit
    of the taxonomy does not embed thousands of values again.

    Returns:
        The vectors of ``embed_values``; and two for each supercategory: by its name, of the name in
        the prompt; by "name: definition", of that text.

    Raises:
        InvalidData, MissingWeights, UsageError: as ``embed_values``.
    """
    rows = sorted(records(taxonomy), key=lambda row: single_blanks(row["supercategory"]))
    names = [single_blanks(row["supercategory"]) for row in rows]
    prompted = [options.prompt.replace(LABEL, name) for name in names]
    defined = [f"{name}: {row['definition']}" for name, row in zip(names, rows, strict=True)]
    vectors, made_by = embed_sentences([*prompted, *defined], options)
    labels = [value_keys(values).tolist(), values["instance_of"].tolist()]
    digest = sha256(json.dumps(labels).encode()).hexdigest()
    wanted = {**made_by, "prompt": options.prompt, "digest": digest}
    kept, path = VectorFile("values.npz"), context.state / "values.npz"
    found = kept.read(path) if path.is_file() else None
    if found is None or found.made_by != wanted:  # the encoder's files may have changed, too
        found = embed_values(values, options)
        kept.write(replace(found, made_by={**found.made_by, "digest": digest}), path)
    found.made_by.pop("digest", None)
    vectors = vectors if names else found.vectors[:0]
    return found, Vectors([*names, *defined], vectors, found.made_by)


def embed_values(values: pd.DataFrame, options: EmbedOptions) -> Vectors:
    """Embed each value's label, put into the prompt.

    Values that the encoder cannot tell apart are named in a notice.

    Args:
        values: one row a value: class_id, instance_of.
        options: encoder, prompt, batch_size, device.

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
    vectors, made_by = embed_sentences(texts, options)
    labels = table["instance_of"].tolist()
    unread = [labels[row] for row in find_unread(labels, vectors).nonzero()[0]]
    if unread:
        named = some_of([f"'{label}'" for label in unread], 3)
        say(f"{count_text(len(unread), 'value')} have the vector of another: {named}; "
            f"{options.encoder} cannot tell them apart, as it does not know their characters or "
            "cuts long labels off: decide them by hand, or for unknown characters set "
            "embed.encoder to a multilingual one")  # fmt: skip
    return Vectors(table["key"].tolist(), vectors, {**made_by, "prompt": options.prompt})


def embed_sentences(texts: list[str], options: EmbedOptions) -> tuple[np.ndarray, dict[str, str]]:
    """Return unit vectors (N, D) of texts as they are, without the prompt, and what made them."""
    starts, threads = range(0, len(texts), options.batch_size), torch.get_num_threads()
    torch.set_num_threads(1)  # more may split a sum in another way and change its last digit
    try:
        encoder = load_text_encoder(options.encoder, options.device)
        batches = [
            encoder.encode(texts[start : start + options.batch_size])
            for start in track(starts, "Embedding values", len(starts))
        ]
    finally:
        torch.set_num_threads(threads)
    vectors = np.concatenate(batches) if batches else np.empty((0, 0), np.float32)
    return vectors.round(DECIMALS), encoder.made_by
