"""kill -9 at random moments: nothing is lost, nothing is there twice, every byte is the same."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

from tests.mediawiki.scraping import Run
from tests.mediawiki.wiki import Wiki, serve
from tests.rehearsal.scrape_scene import (
    Figures,
    count_facts,
    require_done,
    require_sound,
    set_up,
)

__all__ = ["kill_often"]


def kill_often(
    template: Path, folder: Path, landmarks: int = 4_000, kills: int = 30, seed: int = 0
) -> Figures:
    """kill -9 at random moments, over as many scrapes as that takes; each ends as undisturbed."""
    chance = random.Random(seed)
    scene = set_up(template, folder, landmarks)
    when: Counter[str] = Counter()
    with serve(scene.wiki) as wiki:
        plain, seconds = scene.run("undisturbed"), -time.perf_counter()
        require_done(plain.scrape(wiki))
        seconds += time.perf_counter()
        scene.require_truth(plain.output("instance_of"), plain.output("misses"))
        undisturbed, facts = len(wiki.requests()), count_facts(plain)
        rounds = 0
        while when.total() < kills:
            run = scene.run(f"round-{rounds}")
            while when.total() < kills and _kill(run, wiki, chance.uniform(0, seconds / 2)):
                when[_moment(run, facts)] += 1
            require_done(run.scrape(wiki))
            require_sound(run)
            assert count_facts(run) == facts, f"round {rounds}: other facts than undisturbed"
            assert run.output_bytes() == plain.output_bytes(), f"round {rounds} differs"
            rounds += 1
        requests = len(wiki.requests()) - undisturbed
    return {
        "landmarks": landmarks,
        "kills": when.total(),
        "killed_while": dict(when),
        "scrapes": rounds,
        "requests_undisturbed": undisturbed,
        "requests_repeated": requests - rounds * undisturbed,
    }


def _kill(run: Run, wiki: Wiki, after_s: float) -> bool:
    """Start the scrape and kill it so long afterwards; False where it was done before."""
    process = run.start(wiki)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        return True
    finally:
        process.kill()  # does nothing to one that has ended
        process.wait()
    return False


def _moment(run: Run, facts: int) -> str:
    """What a killed scrape was at, as far as its store tells."""
    known = count_facts(run)
    if known == facts:
        return "writing its tables"
    return "asking" if known else "starting"
