"""Serve the review page of a pipeline: decisions go into the labels folder as they are made.

The work folder is not locked while the server runs, so that sheets can be applied and stages run
beside it; a page that is opened after that shows the new state.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from hgld.artifacts import atomic_path, file_stamp, hash_file, records
from hgld.cli.review_actions import (
    add_comment,
    edit_taxonomy,
    list_entries,
    save_choices,
    save_links,
    undo_saved,
)
from hgld.cli.review_pages import (
    PAGE_READS,
    link_photos,
    read_tables,
    read_threads,
    render_link_page,
    render_review,
    shown_images,
)
from hgld.errors import HgldError, InvalidData
from hgld.file_lock import hold
from hgld.hierarchy.decisions import row_id
from hgld.hierarchy.scrape.client import ApiClient
from hgld.pipeline.run import Runner
from hgld.pipeline.stages import load_function
from hgld.review.commons_photos import CommonsPhotos
from hgld.review.live_decisions import LiveDecisions, State
from hgld.review.photos import PhotoReader, choose_images
from hgld.review.review_page import taxonomy_facts
from hgld.review.server import ReviewServer, Site
from hgld.review.sheets import list_decisions
from hgld.review.taxonomy import ACTIONS, TaxonomyEdit, list_renames

STATE_READS = ("clusters", "taxonomy", "decisions", "class_hints", "taxonomy_edits")
GROWING = {"decisions", "comments"}  # the stream of a page reports these


def serve_page(
    runner: Runner,
    stage: str,
    host: str,
    port: int,
    today: Callable[[], str],
    show: Callable[[str], object],
) -> None:
    """Serve the review page or the page of links until Ctrl-C.

    Args:
        runner: of the pipeline and its work folder.
        stage: review or link.
        host: address to listen on.
        port: 0 takes a free one.
        today: returns the date of decisions; a server may run for days.
        show: receives the address of the page once it is served.

    Raises:
        HgldError: another server serves this page.
        UsageError: the address cannot be used.
    """
    make: Callable[[Runner, Path, Callable[[], str]], Site]
    make = _LinkSite if stage == "link" else _LiveSite
    state = runner.workspace.work / ".state" / stage
    state.mkdir(parents=True, exist_ok=True)
    taken = f"{runner.workspace.work}: another hgld serves this review"
    with hold(state / "server.lock", taken, "or open its page"):
        site = make(runner, state, today)
        server = ReviewServer(host, port, _token(state / "token"), site, runner.listener.notice)
        show(server.url)
        with suppress(KeyboardInterrupt):
            server.serve()


class _LinkSite(Site):
    """The page and the photos of the classes without an item."""

    def __init__(self, runner: Runner, state: Path, today: Callable[[], str]) -> None:
        self.runner, self.today, self._alone = runner, today, Lock()
        self._sheet = _name_of(state)
        # rows before are in the sheet, since the stage has just written it
        self._before = len(runner.read("links", "link"))
        self.decisions = LiveDecisions([runner.workspace.path("links")], self._read)
        self._photos = PhotoReader(link_photos(runner), runner.workspace.source)

    def page(self) -> str:
        """Return the HTML; answers since the sheet was written come by its stream."""
        with self._alone:
            return render_link_page(self.runner, {"at": "", "sheet": self._sheet})

    def photos(self, key: str) -> list[dict[str, str]]:
        """Return the photos of the class of that name."""
        return self._photos.list(key)

    def photo(self, name: str) -> bytes | None:
        """Return a photo as JPEG."""
        return self._photos.read(name)

    def save(self, who: str, rows: Sequence[Mapping[str, str]], sitting: str) -> dict[str, Any]:
        """Append answers; return nothing, since the stream reports them."""
        numbered = [
            (number, {**dict.fromkeys(("name", "qid", "note"), ""), **row})
            for number, row in enumerate(rows, 1)
        ]
        self.runner.now = self.today()
        with self._alone:
            save_links(self.runner, numbered, who, Path("page"))
        return {}

    def _read(self) -> State:
        rows = records(self.runner.read("links", "link"))
        return {"rows": {row["name"]: row["qid"] for row in rows[self._before :]}}


class _LiveSite(Site):
    """The page and the photos of a review, made again if a stage changed their tables."""

    def __init__(self, runner: Runner, state: Path, today: Callable[[], str]) -> None:
        self.runner, self.today = runner, today
        path = runner.workspace.path
        files = [path(name) for name in (*STATE_READS, "comments")]
        self.decisions = LiveDecisions(files, self._read)
        self._files = [
            path(name) for name in {*runner.stage("review").reads, *PAGE_READS} - GROWING
        ]
        self._made: Sequence[object] = ()
        self._page, self._alone = "", Lock()
        self._sheet = _name_of(state)
        self._photos: PhotoReader
        pipeline = runner.workspace.pipeline
        self._commons: CommonsPhotos | None = None
        if pipeline.review.thumbnails != "none":
            self._commons = CommonsPhotos(
                runner.read("landmark_values", "review"),
                runner.read("landmarks", "review"),
                client=ApiClient(pipeline.scrape),
                api=pipeline.scrape.commons_api,
                licenses=pipeline.export.licenses,
                folder=state / "commons",
                per_value=pipeline.review.page_photos,
            )
        runner.keep_tables()  # a save reads five, of which it changes one
        load_function("hgld.review.apply:apply_choices")  # the first decision must not wait for it
        self.page()

    def page(self) -> str:
        """Return the HTML; a person who opens it hears of later decisions by its stream."""
        with self._alone:
            stamps = [file_stamp(path) for path in self._files]
            if stamps != self._made:
                try:
                    self._make()
                    self._made = stamps
                except HgldError:
                    if not self._page:
                        raise  # else a stage is running: the page of before until it has ended
            return self._page

    def _make(self) -> None:
        workspace, runner = self.runner.workspace, self.runner
        live = {
            "at": self.decisions.now(),  # before the tables are read, so that nothing is missed
            "clusters": hash_file(workspace.path("clusters")),
            "sheet": self._sheet,
            "file": str(workspace.path("decisions")),
        }
        with runner.alone():
            self._page = render_review(runner, live)
            chosen = choose_images(
                runner.read("landmark_values", "review"),
                runner.read("landmarks", "review"),
                shown_images(runner),
                per_value=workspace.pipeline.review.page_photos,
            )
        self._photos = PhotoReader(chosen, workspace.source)

    def photos(self, key: str) -> list[dict[str, str]]:
        """Return the photos of a value, of this machine or else of Commons."""
        found = self._photos.list(key)
        return found or (self._commons.list(key) if self._commons else [])

    def photo(self, name: str) -> bytes | None:
        """Return a photo as JPEG."""
        return self._photos.read(name) or (self._commons.read(name) if self._commons else None)

    def save(self, who: str, rows: Sequence[Mapping[str, str]], sitting: str) -> dict[str, Any]:
        """Append decisions; return the change of each key, and entry and ids of the new rows."""
        self.runner.now = self.today()
        with self._alone:  # making the page removes temporary files of this process
            applied = save_choices(self.runner, rows, who, "page", sitting)
        done = {change.key: change.kind for change in applied.changes}
        # of a save whose answer was lost, nothing is appended the second time
        new = [key for key, kind in done.items() if kind != "unchanged"] or list(done)
        made = applied.decisions
        made = made[made["key"].isin(new) & (made["who"] == who)]
        last = records(made.drop_duplicates("key", keep="last"))
        entry = last[-1]["entry"].partition(" ")[0] if last else ""
        return {"done": done, "entry": entry, "rows": [row_id(row) for row in last]}

    def comment(self, who: str, key: str, text: str) -> None:
        """Append a comment on a value."""
        self.runner.now = self.today()
        with self._alone:
            add_comment(self.runner, key, text, who)

    def undo(self, who: str, entry: str, rows: Sequence[str]) -> dict[str, Any]:
        """Take an entry or rows of it back; return what was decided again since."""
        self.runner.now = self.today()
        with self._alone:
            return {"left": undo_saved(self.runner, entry, rows, who)}

    def edit_taxonomy(
        self, who: str, edit: Mapping[str, str], keys: Sequence[str]
    ) -> dict[str, Any]:
        """Make an edit of the taxonomy; return its entry, empty if nothing changed."""
        action = edit.get("action", "")
        if action not in ACTIONS:
            raise InvalidData(f"action '{action}': expected one of {', '.join(ACTIONS)}")
        described = edit.get("definition") if action in ("add", "describe") else None
        name, into = edit.get("supercategory", ""), edit.get("into", "")
        wanted = TaxonomyEdit(action, name, into, edit.get("kind", ""), described, tuple(keys))
        self.runner.now = self.today()
        with self._alone:
            if not any(edit_taxonomy(self.runner, [wanted], who).values()):
                return {"entry": ""}
            entries = list_entries(self.runner)
        return {"entry": [one.id for one in entries if one.cells and one.who == who][-1]}

    def _read(self) -> State:
        clusters, taxonomy, decisions, hints, edits = read_tables(self.runner, *STATE_READS)
        return {
            "rows": list_decisions(clusters, taxonomy, decisions, hints, edits),
            "comments": read_threads(self.runner),
            "clusters": {"": hash_file(self.runner.workspace.path("clusters"))},
            "taxonomy": {"": taxonomy_facts(taxonomy)},
            "renamed": list_renames(edits),
        }


def _name_of(state: Path) -> str:
    """Return the name by which answers that wait in a browser belong to this folder, also moved."""
    return sha256(_token(state / "token").encode()).hexdigest()[:16]


def _token(path: Path) -> str:
    """Return the secret of this work folder; it stays, so that open pages find the next server."""
    if not path.is_file():
        with atomic_path(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_urlsafe(24))
    return path.read_text().strip()
