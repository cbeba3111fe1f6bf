"""``hgld run pipelines/gldv2.toml`` on the made world, to its end or killed on the way.

The road has four legs: up to the review, the person's decisions applied, on to the release with
the official protocol, and from the evaluation on with the paper's. What a leg has done is read
from the lines that it prints, one a stage.
"""

import json
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path

from hgld.artifacts import hash_file
from hgld.pipeline.stages import stage_names
from tests.mediawiki.scraping import environment
from tests.rehearsal.road_scene import Servers, decide, prepare_labels

__all__ = ["LEGS", "Kill", "Leg", "Road", "Spent", "draw_kills", "records"]

PIPELINE = "pipelines/gldv2.toml"
SMALL = (  # what the pipeline file is overridden with, so that two cores can do it in a minute
    "scrape.contact=someone@example.org",
    "review.who=someone",
    "embed.encoder=offline:minilm",
    "cluster.clusters=40",
    "train.backbone=offline:efficientnet-lite0",
    "train.precision=float32",
    "train.dim=32",
    "train.image_size=32",
    "train.head_init_images=400",
    "train.classes_per_batch=8",
    "train.defaults.steps=4",
    "train.checkpoint_steps=2",
    "train.workers=1",
    'evaluate.models={pretrained="run:pretrained", happier="run:happier"}',
    "publish.parts=labels+shards",
)
DONE = re.compile(r"^\w+ +(fresh|.*\d s)$", re.M)
LOOK_S = 0.01
STARTING = "starting"
START_S = 0.3  # less than any command takes


@dataclass(frozen=True)
class Leg:
    """A command; its first stages are fresh already.

    Attributes:
        parts: what it does one after the other, and the lines that it has printed then.
    """

    words: tuple[str, ...]
    parts: tuple[tuple[str, int], ...]
    exit_code: int = 0


def _parts(first: str, last: str) -> tuple[tuple[str, int], ...]:
    """The stages from one to another; before them, all that is fresh."""
    numbered = [(name, number) for number, name in enumerate(stage_names(), 1)]
    start, end = stage_names().index(first), stage_names().index(last)
    return (*([(STARTING, start)] if start else []), *numbered[start : end + 1])


APPLY = Leg(("review", "--apply"), (("apply", 1),))
LEGS = (
    Leg(("run",), _parts("fetch", "review"), exit_code=20),
    APPLY,
    Leg(("run",), _parts("label", "publish")),
    Leg(("run", "--set", "evaluate.protocol=gldv2-paper"), _parts("evaluate", "publish")),
)


@dataclass(frozen=True)
class Spent:
    """What a part of a leg took."""

    leg: Leg
    part: str
    seconds: float
    memory_mb: float


@dataclass(frozen=True)
class Kill:
    """The process ends so long after a part of a leg has begun."""

    leg: Leg
    part: str
    after_s: float


def draw_kills(spent: Sequence[Spent], kills: int, chance: random.Random) -> list[Kill]:
    """Random moments: one in each stage, the others anywhere, in the order of the road."""
    stages = {one.part: one for one in reversed(spent) if one.part != STARTING}
    seconds = [one.seconds for one in spent]
    drawn = [*stages.values(), *chance.choices(spent, seconds, k=kills - len(stages))]
    moments = [(spent.index(one), chance.uniform(0, one.seconds)) for one in drawn]
    return [Kill(spent[at].leg, spent[at].part, after) for at, after in sorted(moments)]


@dataclass
class Road:
    """A run in a folder of its own."""

    folder: Path
    servers: Servers
    started: list[int] = field(default_factory=list)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def prepare(self, leg: Leg) -> None:
        """What a person does before a leg."""
        if leg is LEGS[0]:
            prepare_labels(self.folder / "labels")
        if leg is APPLY:
            decide(self.work / "review.csv")

    def go(self, leg: Leg) -> list[Spent]:
        """Go to the end of a leg; what its parts took."""
        with self._start(leg) as running:
            spent = [running.spend(*part) for part in leg.parts]
            running.process.wait()
        assert running.process.returncode == leg.exit_code, running.printed()
        return spent

    def kill(self, kill: Kill) -> str:
        """Start a leg and kill it at its moment; in which part that was."""
        done = [0, *(lines for _, lines in kill.leg.parts)]
        names = [part for part, _ in kill.leg.parts]
        begin, end = list(pairwise(done))[names.index(kill.part)]
        with self._start(kill.leg) as running:
            running.wait(begin)
            running.wait(end, kill.after_s)
            running.process.send_signal(signal.SIGKILL)
        if running.process.returncode != -signal.SIGKILL:  # it was faster than when undisturbed
            return self.kill(Kill(kill.leg, kill.leg.parts[0][0], START_S))
        lines = running.lines()
        return next((part for part, last in kill.leg.parts if last > lines), "at its end")

    def last_words(self) -> str:
        """What was printed by the last command."""
        return (self.folder / f"log-{len(self.started) - 1}").read_text("utf-8")

    def living(self) -> list[int]:
        """Processes that were started, by a command or by what it started, and live on."""
        return [process for process, group in _alive() if group in self.started]

    @contextmanager
    def _start(self, leg: Leg) -> Iterator["Running"]:
        log = self.folder / f"log-{len(self.started)}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._command(leg),
                stdout=subprocess.DEVNULL,
                stderr=out,
                env=environment(),
                start_new_session=True,
            )
        self.started.append(process.pid)
        try:
            yield Running(leg, process, log)
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()

    def _command(self, leg: Leg) -> list[str]:
        settings = [
            *SMALL,
            f"labels={self.folder / 'labels'}",
            f"fetch.base_url={self.servers.files_url}",
            f"fetch.downloads={self._downloads()}",
            *(f"scrape.{name}={self.servers.wiki_url}" for name in ("commons_api", "wikidata_api")),
        ]
        verb, *more = leg.words
        words = [word for setting in settings for word in ("--set", setting)]
        hgld = [sys.executable, "-m", "hgld", verb, PIPELINE, "--work", str(self.work)]
        return [*hgld, "--now", "2026-11-21", *words, *more]

    def _downloads(self) -> str:
        """The pipeline's downloads as TOML, with the sizes that the made files have."""
        listed = tomllib.loads(Path(PIPELINE).read_text("utf-8"))["fetch"]["downloads"]
        for one in listed:
            if one["url"] in self.servers.files.data:  # a file without a published MD5
                one["megabytes"] = len(self.servers.files.data[one["url"]]) / 1e6
        inline = (", ".join(f"{k} = {json.dumps(v)}" for k, v in one.items()) for one in listed)
        return f"[{', '.join(f'{{{one}}}' for one in inline)}]"

    def outputs(self) -> dict[str, str]:
        """What the run and the person have made, by name; without what is hidden."""
        found = {}
        for path in [*self.work.rglob("*"), *(self.folder / "labels").rglob("*")]:
            name = path.relative_to(self.folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                found[str(name)] = records(path) if path.name == "lock.json" else hash_file(path)
        return found


def _alive() -> Iterator[tuple[int, int]]:
    """Each process and its group; one that is dead and waits to be taken note of does not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
            if state != "Z":
                yield int(stat.parent.name), int(group)


def records(lock: Path) -> str:
    """What a lock says of the stages, without how long they took and when files were written."""
    stages = json.loads(lock.read_text())["stages"]
    return json.dumps([{**record, "seconds": 0} for record in stages.values()])


@dataclass
class Running:
    """A leg under way."""

    leg: Leg
    process: subprocess.Popen[bytes]
    log: Path

    def printed(self) -> str:
        """What it has printed."""
        return self.log.read_text("utf-8")

    def lines(self) -> int:
        """How many stages are done or fresh."""
        return len(DONE.findall(self.printed()))

    def wait(self, lines: int, most_s: float = inf) -> float:
        """Wait until so many stages are done, or so long; the most megabytes in use meanwhile."""
        end, peak = time.perf_counter() + most_s, 0.0
        self._forget_peak()
        while self.process.poll() is None and self.lines() < lines and time.perf_counter() < end:
            peak = max(peak, self._peak_mb())
            time.sleep(LOOK_S)
        return peak

    def spend(self, part: str, lines: int) -> Spent:
        """Wait until a part is done; what it took."""
        start = time.perf_counter()
        peak = self.wait(lines)
        return Spent(self.leg, part, time.perf_counter() - start, peak)

    def _forget_peak(self) -> None:
        with suppress(OSError):  # it has just ended
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _peak_mb(self) -> float:
        with suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            if found := re.search(r"VmHWM:\s+(\d+)", status):
                return int(found[1]) / 1024
        return 0.0
