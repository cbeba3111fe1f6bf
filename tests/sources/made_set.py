"""A tiny set in GLDv2's layout, written by hand, whose every row a test can count."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from hgld.artifacts import LargeTable, declared_table
from hgld.config import CollectOptions, StageContext

__all__ = ["OPTIONS", "checked", "folder_of", "in_memory", "write_set", "write_tar"]

OPTIONS = CollectOptions(
    train_csv="train.csv",
    train_clean_csv="clean.csv",
    train_attribution_csv="attribution.csv",
    train_category_csv="train_category.csv",
    index_image_csv="index.csv",
    index_category_csv="index_category.csv",
    retrieval_solution_csv="solution.csv",
    train_tars="train_*.tar",
    index_tars="index_*.tar",
    test_tars="test_*.tar",
)
FILES = {
    "train.csv": "id,url,landmark_id\n"
    "0000000000000001,http://a.example/1.jpg,5\n"
    '00000000000000a2,"https://a.example/2,_b.jpg",5\n'
    "00000000000000a3,http://a.example/3.jpg,7\n"
    "00000000000000a4,http://a.example/4.jpg,7\n",
    "clean.csv": "\ufefflandmark_id,images\n5,0000000000000001 00000000000000a2\n"
    "7,00000000000000a3\n",
    "attribution.csv": "id,url,author,license,title\n"
    '0000000000000001,http://a.example/1.jpg,"Mole, Ann",CC BY 4.0,"One ""tower"""\n'
    "00000000000000a3,http://a.example/3.jpg,,CC0,NA\n",
    "train_category.csv": "landmark_id,category\n"
    '5,"http://commons.wikimedia.org/wiki/Category:Caf%C3%A9,_Rome"\n'
    "7,http://commons.wikimedia.org/wiki/Category:O'Hara_100%2525\n"
    "9,http://commons.wikimedia.org/wiki/Category:C%2B%2B_tower\n",
    "index.csv": "id,landmark_id\r\nb1,5\r\nb2,5\r\nb3,6\r\n",
    "index_category.csv": "landmark_id,category\n"
    "5,http://commons.wikimedia.org/wiki/Category:Other_five\n"
    "6,http://commons.wikimedia.org/wiki/Category:Six\n",
    "solution.csv": "id,images,Usage\nc1,b3 b1,Public\nc2,None,Ignored\nc3,b1,Private\n",
}
TARS = {
    "train_000.tar": ["0000000000000001", "00000000000000a2"],
    "train_001.tar": ["00000000000000a3", "00000000000000a4"],
    "index_000.tar": ["b1", "b2", "b3"],
    "test_000.tar": ["c1", "c2", "c3"],
}


def write_set(folder: Path, **changed: str | list[str] | None) -> Path:
    """Write all files; a keyword changes one (``train_csv`` for train.csv), None leaves it out."""
    folder.mkdir(parents=True, exist_ok=True)
    changes = {name.replace("__", "."): value for name, value in changed.items()}
    for name, content in {**FILES, **TARS, **changes}.items():
        if isinstance(content, str):
            (folder / name).write_text(content, encoding="utf-8", newline="")
        elif content is not None:
            write_tar(folder / name, content)
    for name in (name for name, content in changes.items() if content is None):
        (folder / name).unlink(missing_ok=True)
    return folder


def write_tar(path: Path, image_ids: list[str], format_: int = tarfile.USTAR_FORMAT) -> None:
    """A tar of ``a/b/c/ID.jpg`` whose bytes say which image they are."""
    with tarfile.open(path, "w", format=format_) as tar:
        for image_id in image_ids:
            data = f"jpeg of {image_id}".encode() * 50
            member = tarfile.TarInfo(f"{'/'.join(image_id[:3])}/{image_id}.jpg")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def in_memory(tables: Iterable[pd.DataFrame | LargeTable]) -> tuple[pd.DataFrame, ...]:
    """What collect returns, with the large tables read."""
    return tuple(t.read() if isinstance(t, LargeTable) else t for t in tables)


def checked(tables: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, ...]:
    """The tables of collect, each seen to be what its artifact says."""
    names = ("landmarks", "images", "queries", "images_dropped")
    for name, table in zip(names, tables, strict=True):
        declared = declared_table(name)
        assert list(table.columns) == list(declared.columns)
        declared.check(table, Path(name))
    return tuple(tables)


def folder_of(context: StageContext) -> Path:
    assert context.source.folder is not None
    return context.source.folder
