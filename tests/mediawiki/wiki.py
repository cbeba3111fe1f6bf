"""A real MediaWiki on a loopback address: Debian's package, SQLite, PHP's built-in server.

It is installed once (half a second) as a template, which each test copies, fills and serves. In
front of it stands ``router.php``, which turns callers without a contact away and makes the faults
that a plan asks for. Keep-alive, gzip and Wikidata's size are what it lacks.
"""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mediawiki.fill import database, export_xml, fill_by_sql, fill_entities
from tests.mediawiki.world import World
from tests.object_store import free_port

HERE = Path(__file__).parent
MEDIAWIKI = Path("/usr/share/mediawiki")
START_S = 180.0
TABLES = """
CREATE TABLE hgld_entity (
    id TEXT PRIMARY KEY, target TEXT NOT NULL, page INTEGER NOT NULL, revision INTEGER NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE hgld_sitelink (title TEXT PRIMARY KEY, id TEXT NOT NULL) WITHOUT ROWID;
"""
PHP_SETTINGS = {
    "display_errors": "0",
    "memory_limit": "512M",
    "post_max_size": "8M",
    "opcache.enable": "1",
    "opcache.enable_cli": "1",
    "opcache.validate_timestamps": "0",
}


@dataclass(frozen=True)
class Wiki:
    """A wiki that is being served."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """Of its API."""
        return f"http://127.0.0.1:{self.port}/api.php"

    def plan(self, words: Sequence[str]) -> None:
        """What happens to the next requests, a word each (see router.php); then the truth."""
        (self.folder / "served").unlink(missing_ok=True)
        (self.folder / "plan.txt").write_text("\n".join(words) + "\n")

    def requests(self) -> list[dict[str, Any]]:
        """What was asked so far, in the order in which it came."""
        path = self.folder / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return sorted((json.loads(line) for line in lines), key=lambda line: line["came"])


def what_is_missing() -> str:
    """What this machine lacks for a wiki of its own; empty where it lacks nothing."""
    if shutil.which("php") is None or not (MEDIAWIKI / "api.php").exists():
        return "no MediaWiki here (Debian packages mediawiki, php-cli, php-sqlite3, php-intl)"
    have = subprocess.run(["php", "-m"], capture_output=True, text=True, check=True).stdout.split()
    lacking = sorted({"pdo_sqlite", "intl", "mbstring", "xml"} - {word.lower() for word in have})
    return f"PHP lacks its modules {', '.join(lacking)}" if lacking else ""


def require_mediawiki() -> None:
    """Skip where there is no MediaWiki; fail in CI, which has to have it."""
    missing = what_is_missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing}; `make system` installs it")
    if missing:
        pytest.skip(f"NOT TESTED against a real MediaWiki: {missing}; `make system` installs it")


def install(folder: Path) -> Path:
    """Install an empty wiki, to be copied."""
    for name in ("data", "cache"):
        (folder / name).mkdir(parents=True)
    _php(
        *("install.php", "--dbtype", "sqlite", "--dbpath", folder / "data", "--dbname", "hgld"),
        *("--confpath", folder, "--server", "http://127.0.0.1", "--scriptpath", "", "--skins", ""),
        *("--pass", "correct horse battery staple", "Test wiki", "Admin"),
    )
    with (folder / "LocalSettings.php").open("a") as file:
        file.write(f"$hgldWiki = __DIR__;\nrequire '{HERE}/settings.php';\n")
    with closing(sqlite3.connect(database(folder))) as connection:
        connection.executescript(TABLES)
    _php("showSiteStats.php", wiki=folder)  # its messages are cached now
    return folder


def fill_by_import(folder: Path, world: World) -> None:
    """Let MediaWiki itself make the pages, from an export file and its own parser."""
    fill_entities(folder, world)
    _php("importDump.php", "--username-prefix", "", wiki=folder, text=export_xml(world))
    _php("refreshLinks.php", wiki=folder)


def fill_copy(template: Path, folder: Path, worlds: Iterable[World]) -> Path:
    """Copy the template and fill it; large worlds come in parts."""
    shutil.copytree(template, folder)
    for world in worlds:
        fill_by_sql(folder, world)
    return folder


@contextmanager
def serve_world(template: Path, folder: Path, *worlds: World) -> Iterator[Wiki]:
    """Copy the template, fill it with worlds and serve it."""
    with serve(fill_copy(template, folder, worlds)) as wiki:
        yield wiki


@contextmanager
def serve(folder: Path, workers: int = 2, settings: str = "") -> Iterator[Wiki]:
    """Serve the wiki in a folder; ``settings`` is more PHP for its LocalSettings.php."""
    (folder / "more.php").write_text(f"<?php\n{settings}\n")
    port = free_port()
    options = [part for pair in PHP_SETTINGS.items() for part in ("-d", "=".join(pair))]
    command: list[str | Path] = [
        "php",
        *options,
        "-S",
        f"127.0.0.1:{port}",
        "-t",
        MEDIAWIKI,
        HERE / "router.php",
    ]
    with (folder / "server.log").open("w") as log:
        environment = {**_environment(folder), "HGLD_WIKI_PORT": str(port)}
        environment |= {"PHP_CLI_SERVER_WORKERS": str(workers)}
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_for(port, server)
        yield Wiki(folder, port)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _environment(folder: Path) -> dict[str, str]:
    settings = {"MW_CONFIG_FILE": str(folder / "LocalSettings.php"), "HGLD_WIKI": str(folder)}
    return {**os.environ, **settings}


def _php(script: str, *arguments: object, wiki: Path | None = None, text: str = "") -> None:
    """Run one of MediaWiki's maintenance scripts."""
    command: list[str | Path] = ["php", MEDIAWIKI / "maintenance" / script, *map(str, arguments)]
    environment = _environment(wiki) if wiki else dict(os.environ)
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stdout[-800:]} {done.stderr[-800:]}")


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"PHP's server did not start on port {port}")
