"""A disk that fills up in mid-run: one line says so, and the same command goes on."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.mediawiki.scraping import Run
from tests.mediawiki.wiki import Wiki, serve
from tests.rehearsal.scrape_scene import Figures, count_facts, require_done, require_sound, set_up
from tests.sources.small_disk import small_disk

__all__ = ["fill_the_disk"]


def fill_the_disk(
    template: Path,
    folder: Path,
    landmarks: int = 4_000,
    shares: Sequence[float] = (0.3, 0.8, 1.4, 2.0),
) -> list[Figures]:
    """The disk fills up in mid-run, at several points; the same command finishes afterwards.

    Args:
        shares: of what an undisturbed scrape leaves on the disk, that there is room for; while it
            runs it needs more than twice as much, for SQLite's log and the tables half written.
    """
    scene = set_up(template, folder, landmarks)
    with serve(scene.wiki) as wiki:
        plain = scene.run("undisturbed")
        at_first = _size(plain.work)
        require_done(plain.scrape(wiki))
        need = _size(plain.work) - at_first
        return [
            _fill_once(scene.run(f"full-{share}"), wiki, plain, at_first + int(share * need))
            for share in shares
        ]


def _fill_once(run: Run, wiki: Wiki, plain: Run, size: int) -> Figures:
    beside = run.work.rename(run.work.with_name("beside"))
    with small_disk(run.work, size) as grow:
        shutil.copytree(beside, run.work, dirs_exist_ok=True)
        stopped = run.scrape(wiki)
        require_sound(run)
        facts = count_facts(run)
        grow()
        finished = run.scrape(wiki)
        require_done(finished)
        require_sound(run)
        assert run.output_bytes() == plain.output_bytes()
    last = [line for line in stopped.stderr.splitlines() if line.startswith("hgld: ")]
    assert len(last) == 1, stopped.stderr
    return {
        "disk_kb": size // 1024,
        "exit_code": stopped.returncode,
        "message": last[0].replace(str(run.work), "WORK"),
        "facts_kept": facts,
    }


def _size(folder: Path) -> int:
    blocks = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(-(-size // 4096) * 4096 for size in blocks)
