"""Embeddings, vectors, weights, tables and pipeline files from anybody."""

import io
import json
import zlib
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.artifacts import ARTIFACTS, declared_table, read_csv
from hgld.artifacts.formats import VectorFile
from hgld.config import TrainOptions, load_pipeline
from hgld.errors import InvalidData
from hgld.evaluate.given import read_given, read_labels
from hgld.model import build_image_model, load_model, save_model
from tests.fuzz.driver import fuzz

VECTORS = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32)
IDS = np.array(["p0", "p1", "p2", "p3"])
LABELS = np.array([["nature", "lake"], ["nature", "lake"], ["built", "mill"], ["built", "dam"]])
SHAPES = [
    b"(4, 2)",
    b"(9999999999, 2)",
    b"(-1, 2)",
    b"()",
    b"(4,)",
    b"'|O'",
    b"'<f8'",
    b"'<U9999999'",
]
CELLS = [
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\0",
    b",,",
    b'""',
    b"nan",
    b"1_000",
    "٣".encode(),
    b"\xff",
    b"\xef\xbb\xbf",
]
TOML = [
    b"[",
    b"]",
    b"{",
    b"}",
    b'"""',
    b"=",
    b"9" * 5000,
    b"[" * 5000,
    b"a.",
    b"inf",
    b"1979-05-27",
]


def bytes_of(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def right_crcs(data: bytes) -> bytes:
    """The archive with the right CRC of each stored member, so that its content is read."""
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            members = [(i.filename, i.header_offset, i.file_size) for i in archive.infolist()]
    except Exception:
        return data
    made = bytearray(data)
    for name, at, size in members:
        start = at + 30 + int.from_bytes(made[at + 26 : at + 28], "little")
        start += int.from_bytes(made[at + 28 : at + 30], "little")
        crc = zlib.crc32(made[start : start + size]).to_bytes(4, "little")
        made[at + 14 : at + 18] = crc
        entry = data.rfind(name.encode())
        if entry >= 46:
            made[entry - 30 : entry - 26] = crc
    return bytes(made)


def bomb() -> bytes:
    """200 MB of zeros in 200 kB."""
    known = {"descr": "<f4", "fortran_order": False, "shape": (200 << 17, 2)}
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive, archive.open("vectors.npy", "w") as file:
        file.write(bytes_of(lambda head: np.lib.format.write_array_header_1_0(head, known)))
        for _ in range(200):
            file.write(bytes(1 << 20))
    return buffer.getvalue()


NPZ = bytes_of(lambda file: np.savez(file, vectors=VECTORS, ids=IDS, labels=LABELS))
PACKED = bytes_of(lambda file: np.savez_compressed(file, vectors=VECTORS, ids=IDS, labels=LABELS))
NPY = bytes_of(lambda file: np.save(file, VECTORS))
WORDS = bytes_of(lambda file: np.save(file, LABELS))
PARQUET = pd.DataFrame(
    {"image_id": IDS, "embedding": list(VECTORS), "place": LABELS[:, 1]}
).to_parquet()
CSV = b'image_id,kind,place\np0,nature,lake\np1,nature,"lake, small"\n\np2,built,mill\n'


def given_npz(data: bytes, folder: Path) -> None:
    (folder / "x.npz").write_bytes(data)
    read_given(folder / "x.npz")


def given_npy(data: bytes, folder: Path) -> None:
    (folder / "x.npy").write_bytes(data)
    read_given(folder / "x.npy")


def given_parquet(data: bytes, folder: Path) -> None:
    (folder / "x.parquet").write_bytes(data)
    read_given(folder / "x.parquet")


def labels_csv(data: bytes, folder: Path) -> None:
    (folder / "x.csv").write_bytes(data)
    read_labels(folder / "x.csv")


def labels_npy(data: bytes, folder: Path) -> None:
    (folder / "x.npy").write_bytes(data)
    read_labels(folder / "x.npy")


def vector_file(data: bytes, folder: Path) -> None:
    artifact = ARTIFACTS["label_vectors"]
    assert isinstance(artifact, VectorFile)
    (folder / "x.npz").write_bytes(data)
    artifact.read(folder / "x.npz")


def landmarks(data: bytes, folder: Path) -> None:
    artifact = declared_table("landmarks")
    (folder / "x.csv").write_bytes(data)
    artifact.read(folder / "x.csv")


def columns_of_csv(data: bytes, folder: Path) -> None:
    (folder / "x.csv").write_bytes(data)
    read_csv(folder / "x.csv", {"id": "int", "score": "float", "name": "text"})


def pipeline_file(data: bytes, folder: Path) -> None:
    (folder / "x.toml").write_bytes(data)
    load_pipeline(folder / "x.toml")


def weights(data: bytes, folder: Path) -> None:
    _small_model(folder)
    (folder / "model.safetensors").write_bytes(data)
    load_model(folder)


def model_config(data: bytes, folder: Path) -> None:
    _small_model(folder)
    (folder / "config.json").write_bytes(data)
    load_model(folder)


def _small_model(folder: Path) -> None:
    if not (folder / "config.json").exists():
        options = TrainOptions(backbone="test_vit", pretrained=False, dim=2, image_size=32)
        save_model(build_image_model(options), folder, {"loss": "SupAP"})


def seed_of(name: str, tmp_path: Path) -> bytes:
    _small_model(tmp_path)
    return (tmp_path / name).read_bytes()


def test_any_npz_of_embeddings_is_read_or_refused() -> None:
    assert fuzz(given_npz, [NPZ, PACKED], tokens=SHAPES, repair=right_crcs).accepted


def test_an_archive_that_holds_far_more_than_its_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(bomb())
    with pytest.raises(InvalidData, match="more than 100 times its own size"):
        read_given(tmp_path / "x.npz")


def test_any_npy_of_embeddings_is_read_or_refused() -> None:
    assert fuzz(given_npy, [NPY], tokens=SHAPES).accepted


def test_any_parquet_of_embeddings_is_read_or_refused() -> None:
    assert fuzz(given_parquet, [PARQUET]).accepted


def test_any_table_of_labels_is_read_or_refused() -> None:
    assert fuzz(labels_csv, [CSV], tokens=CELLS).accepted


def test_any_array_of_labels_is_read_or_refused() -> None:
    assert fuzz(labels_npy, [WORDS], tokens=SHAPES).accepted


def test_any_vector_file_is_read_or_refused() -> None:
    made = {"ids": IDS, "vectors": VECTORS, "made_by": np.array(json.dumps({"encoder": "x"}))}
    seed = bytes_of(lambda file: np.savez(file, **made))
    assert fuzz(vector_file, [seed], tokens=SHAPES, repair=right_crcs).accepted


def test_any_csv_of_landmarks_is_read_or_refused() -> None:
    seed = b"split,landmark_id,name,commons_url\ntrain,1,A,http://x/Category:A\ntrain,2,B,\n"
    assert fuzz(landmarks, [seed], tokens=CELLS).accepted


def test_any_csv_with_numbers_is_read_or_refused() -> None:
    assert fuzz(columns_of_csv, [b"id,score,name\n1,0.5,a\n2,1e3,b\n"], tokens=CELLS).accepted


def test_any_pipeline_file_is_read_or_refused() -> None:
    seeds = [Path(f"pipelines/{name}.toml").read_bytes() for name in ("quickstart", "sop")]
    assert fuzz(pipeline_file, seeds, tokens=TOML).accepted


def test_any_weights_are_read_or_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    assert fuzz(weights, [seed_of("model.safetensors", tmp_path)]).accepted


def test_any_config_of_a_model_is_read_or_refused(tmp_path: Path) -> None:
    assert fuzz(
        model_config, [seed_of("config.json", tmp_path)], tokens=[b"null", b"[]", b"{}"]
    ).accepted
