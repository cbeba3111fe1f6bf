"""A curator's process in a race: applies sheets to a labels folder that others write to as well.

    python -m tests.rehearsal.review_race PIPELINE WORK NAME

Each line of stdin is a JSON object, value -> supercategory or drop. The process makes the sheet of
the present decisions, fills it in, prints "ready", waits for a line, applies, and prints the kinds
of changes by value.
"""

import json
import sys
from pathlib import Path

from hgld.artifacts import declared_table
from hgld.cli.arguments import open_workspace
from hgld.cli.console import Printer
from hgld.cli.review_actions import apply_review
from hgld.pipeline.run import Runner


def main(pipeline: Path, work: Path, name: str) -> None:
    """Take part in races until stdin ends."""
    runner = Runner(open_workspace(pipeline, None, work), "2026-11-21", Printer())
    for number, line in enumerate(sys.stdin):
        with runner.alone():
            sheet = runner.make(runner.stage("review"))["review"].set_index("instance_of")
        for value, place in json.loads(line).items():
            decision = "drop" if place == "drop" else "keep"
            sheet.loc[value, ["decision", "supercategory", "kind"]] = [decision, "", ""]
            if decision == "keep":
                sheet.loc[value, "supercategory"] = place
        path = work / f"race-{number}.csv"
        declared_table("review").write(sheet.reset_index(), path)
        print("ready", flush=True)
        sys.stdin.readline()
        applied = apply_review(runner, name, [path])
        print(json.dumps({one.label: one.kind for one in applied.changes}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
