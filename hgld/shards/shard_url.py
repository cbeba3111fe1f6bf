"""The folder of an export at a URL: its single writer, what is removed first, and what comes last.

The folder without ``manifest.json`` is incomplete: the manifest is deleted before the first shard
is written, and uploaded after all other files. The local folder of the export keeps the sidecars
and a note of the URL, so that all later stages read tables from the disk and images from the URL.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

from hgld.artifacts import Json, write_file
from hgld.config import ExportOptions, StageContext
from hgld.errors import HgldError, InvalidData
from hgld.shards.index import read_manifest
from hgld.shards.location import LOCATION
from hgld.shards.sidecars import SIDECARS, outdated_files
from hgld.storage import DRIVERS, RemoteFolder
from hgld.words import single_blanks

WRITER = ".writer"  # lock of a folder of shards; it also shows that hgld wrote the folder
TOKEN = ".token"  # file of the local folder with this export's name for itself
SETTLED_S = 1.0  # longer than from the look for a writer to the write of the own name
# A web server takes no files, and FTP's driver states no version by which a file is recognised.
UNFIT = {"ftp", "http", "https"}


def check_url(*, options: ExportOptions, context: StageContext) -> None:
    """Refuse an ``export.out`` that shards cannot be written to, before any stage has started.

    Raises:
        HgldError: its scheme is unfit or unknown, or it cannot be reached.
    """
    if options.out is not None:
        ShardUrl(options.out, context.state).remote.stat("manifest.json")


class ShardUrl:
    """The URL that an export writes to, with the local folder of its sidecars.

    Args:
        url: of the folder for the shards.
        out: the local folder; exists before ``held``.

    Raises:
        HgldError: shards cannot be written to URLs of this scheme.
    """

    def __init__(self, url: str, out: Path) -> None:
        self.remote, self.out = RemoteFolder(url), out
        scheme = url.partition("://")[0].lower()
        if scheme in UNFIT:
            raise HgldError(
                f"{self.remote.location()}: shards cannot be written to {scheme}://; expected "
                f"file, {', '.join(DRIVERS)}"
            )

    def require_own(self, labels_sha256: str, options: Mapping[str, Any]) -> None:
        """Refuse files that hgld did not write, and another export, since both would be deleted.

        Args:
            labels_sha256: hash of the hierarchy of this export.
            options: its decisive options. A complete export with these labels and options may be
                replaced from any work folder, one with others only from the one that wrote it.

        Raises:
            InvalidData: the folder has such files or another export.
            HgldError: it cannot be reached.
        """
        found = self.remote.list()
        stored = found.get("manifest.json")
        manifest = read_manifest(self.remote.url) if stored else {}
        strange = sorted(name for name in found if name.endswith(".tar") or name in SIDECARS)
        if strange and WRITER not in found and not manifest.get("options"):
            raise InvalidData(
                f"{self.remote.location(strange[0])}: hgld export did not write it ({len(strange)} "
                "such files); choose another folder, or move them away"
            )
        made_from = json.loads(json.dumps([labels_sha256, options]))
        if stored is None or [manifest.get("labels_sha256"), manifest.get("options")] == made_from:
            return
        path = self.out / LOCATION
        note = Json(LOCATION).read(path) if path.is_file() else {}
        # A note without a manifest is that of an export that was killed.
        if note.get("url") != self.remote.url or note.get("manifest", stored.stamp) != stored.stamp:
            raise InvalidData(
                f"{self.remote.location()}: holds the shards of another export; choose another "
                f"URL, or delete {self.remote.location('manifest.json')} to replace them"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only writer of the folder while the block runs.

        An object store does not know whether a writer still runs. An export that was killed is
        recognised by the token in its local folder and resumes; another one is refused.

        Raises:
            HgldError: another process is named as the writer, or the folder cannot be written.
        """
        known = self.remote.stat(WRITER)
        held = known is not None and known.size_bytes > 0
        owner = self.remote.read(WRITER).decode(errors="replace") if held else ""
        path = self.out / TOKEN
        token = path.read_text() if path.is_file() else uuid4().hex
        if owner and token not in owner:
            who = single_blanks(owner.partition(";")[0])
            raise HgldError(
                f"{self.remote.location()}: another process is writing shards here ({who}); wait "
                f"for it, or delete {self.remote.location(WRITER)} if it no longer runs"
            )
        write_file(path, token)
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        text = f"process {os.getpid()} on {socket.gethostname()} since {since}; {token}\n"
        self.remote.write(WRITER, text.encode())
        sleep(SETTLED_S)  # two may begin at the same moment; the last to write its name goes on
        if self.remote.read(WRITER).decode() != text:
            raise HgldError(f"{self.remote.location()}: another process began to write shards here")
        try:
            yield
        except BaseException:
            with suppress(HgldError):  # the first error is reported; the token lets a rerun in
                self.remote.write(WRITER, b"")
            raise
        self.remote.write(WRITER, b"")

    def clear(self, planned: set[str]) -> None:
        """Delete the manifest, then the other sidecars and all shards that are not planned."""
        Json(LOCATION).write({"url": self.remote.url}, self.out / LOCATION)
        self.remote.delete(outdated_files(self.remote.list(), planned))

    def finish(self) -> None:
        """Upload the sidecars, the manifest last, and note its version."""
        names = [path.name for path in self.out.iterdir() if not path.name.startswith(".")]
        for name in sorted(set(names) - {"manifest.json"}):
            self.remote.upload(self.out / name, name)
        stored = self.remote.upload(self.out / "manifest.json", "manifest.json")
        note = {"url": self.remote.url, "manifest": stored.stamp}
        Json(LOCATION).write(note, self.out / LOCATION)
