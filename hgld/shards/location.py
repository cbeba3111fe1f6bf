"""Location of the tars of a folder of shards: in it, or at the URL in its ``.location.json``."""

from pathlib import Path

from hgld.artifacts import Json
from hgld.config import Pipeline
from hgld.errors import InvalidData
from hgld.storage import RemoteFolder, as_folder

LOCATION = ".location.json"  # of tars that are not beside their index


def tar_folder(folder: Path | str) -> Path | str:
    """Place of the tars of a folder of shards: in it, or at the URL that ``export.out`` named.

    Raises:
        InvalidData: the tars at the URL were replaced, so the folder's index is not theirs.
        HgldError: the URL cannot be reached.
    """
    found = as_folder(folder)
    if not isinstance(found, Path) or not (found / LOCATION).is_file():
        return found
    known = Json(LOCATION, keys=("url",)).read(found / LOCATION)
    url = str(known["url"])
    if "manifest" in known and not _is_exported_to(found, url):
        raise InvalidData(
            f"{url}: holds another export than {found}, or an incomplete one; run export again"
        )
    return as_folder(url)


def is_in_place(folder: Path, pipeline: Pipeline) -> bool:
    """Whether the shards of a folder are where ``export.out`` wants them, none of them lost."""
    url, manifest, note = pipeline.export.out, folder / "manifest.json", folder / LOCATION
    if url is None:
        return not note.is_file()
    if not (manifest.is_file() and note.is_file() and _is_exported_to(folder, url)):
        return False
    stored = {name: file.size_bytes for name, file in RemoteFolder(url).list().items()}
    shards = Json(manifest.name).read(manifest)["shards"]
    return all(stored.get(shard["file"]) == shard["bytes"] for shard in shards)


def _is_exported_to(folder: Path, url: str) -> bool:
    """Whether the tars of a folder with a note are at this URL, complete and not replaced since."""
    known = Json(LOCATION).read(folder / LOCATION)
    found = RemoteFolder(url).stat("manifest.json") if known.get("url") == url else None
    return found is not None and found.stamp == known.get("manifest")
