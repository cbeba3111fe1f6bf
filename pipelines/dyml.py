"""Runs the three DyML pipelines and averages their levels, as Table VIII of the SupRank paper does.

    HGLD_DATA=/data python pipelines/dyml.py --work work/dyml
    HGLD_DATA=/data python pipelines/dyml.py --work work/dyml --set train.only=[]

Further options go to each `hgld` command. The table is printed, and kept as dyml.json in the work
folder, beside one evaluation of each benchmark. Stopped, the same command goes on.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hgld.artifacts import Json

PIPELINES = Path(__file__).parent
LEVELS = ("fine", "middle", "coarse")
METRICS = {"mAP": "AP", "ASI": "ASI", "R@1": "R@1"}  # of the table: ours, at each level

Means = dict[str, dict[str, float]]  # model -> metric -> value
Run = Callable[[Sequence[str]], int]  # words after hgld -> exit code


def run_hgld(words: Sequence[str]) -> int:
    """Run a command of hgld, which prints why it fails; return its exit code."""
    return subprocess.run([sys.executable, "-m", "hgld", *words], check=False).returncode


def measure(name: str, work: Path, options: list[str], run: Run) -> list[Means]:
    """Train a set's models; return what they measure, once for each level."""
    pipeline = PIPELINES / f"dyml-{name}.toml"

    def hgld(*words: str) -> None:
        if code := run([*words, "--work", str(work), *options]):
            sys.exit(code)

    hgld("run", str(pipeline), "--until", "train")
    if name == "product":  # one test set with classes at all levels
        hgld("evaluate", str(pipeline))
        found = _read(work)
        return [
            {
                model: {m: values[f"{ours}:{level}"] for m, ours in METRICS.items()}
                for model, values in found.items()
            }
            for level in LEVELS
        ]
    levels = []
    for level in LEVELS:  # a benchmark each, with queries and gallery of its own
        sides = f"test-{level}", f"test-{level}+index-{level}"
        sets = [f"evaluate.query={sides[0]}", f"evaluate.gallery={sides[1]}"]
        hgld("evaluate", str(pipeline), *(word for one in sets for word in ("--set", one)))
        (work / f"report-{level}.json").write_bytes((work / "report.json").read_bytes())
        # Each class of a benchmark is the same at all levels, so any level gives its figures.
        levels.append(
            {
                model: {"mAP": values["AP:fine"], "ASI": values["ASI"], "R@1": values["R@1:fine"]}
                for model, values in _read(work).items()
            }
        )
    return levels


def average(levels: list[Means]) -> Means:
    """Mean over the levels of each metric of each model.

    Example:
        >>> average([{"a": {"R@1": 0.5}}, {"a": {"R@1": 1.0}}])
        {'a': {'R@1': 0.75}}
    """
    return {
        model: {m: sum(level[model][m] for level in levels) / len(levels) for m in values}
        for model, values in levels[0].items()
    }


def _read(work: Path) -> Means:
    report = Json("report.json").read(work / "report.json")
    return {name: model["mean"] for name, model in report["models"].items()}


def main(words: list[str], run: Run = run_hgld) -> None:
    """Measure the three sets, print the table, write dyml.json."""
    parser = argparse.ArgumentParser(prog="pipelines/dyml.py")
    parser.add_argument("--work", type=Path, default=Path("work/dyml"))
    known, options = parser.parse_known_args(words)
    means = {
        name: average(measure(name, known.work / name, options, run))
        for name in ("vehicle", "animal", "product")
    }
    Json("dyml.json").write(means, known.work / "dyml.json")
    print("| % | " + " | ".join(f"{n} {m}" for n in means for m in METRICS) + " |")
    print("|---|" + "---:|" * len(METRICS) * len(means))
    for model in means["vehicle"]:
        cells = (f"{100 * found[model][m]:.1f}" for found in means.values() for m in METRICS)
        print(f"| {model} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
