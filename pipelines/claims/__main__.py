"""Train, measure and judge every experiment of a budget, and write the results.

    python -m pipelines.claims head finetune made           results/claims-{head,finetune,made}.json
    python -m pipelines.claims made --folds 0 1             only those folds; writes no results

You can kill a run at any time, and the same command resumes it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hgld.errors import HgldError
from pipelines.claims.studies import FOLDS, ROOT, STUDIES, run_studies


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("budgets", nargs="+", choices=STUDIES)
    parser.add_argument("--shards", type=Path, default=ROOT / "work" / "washington" / "shards")
    parser.add_argument("--kept", type=Path, default=ROOT / "work" / "claims", help="of ledgers")
    parser.add_argument("--processes", type=int, default=2, help="folds at a time")
    parser.add_argument("--folds", type=int, nargs="+", choices=range(FOLDS), default=range(FOLDS))
    given = parser.parse_args(arguments)
    try:
        run_studies(given.budgets, given.shards, given.kept, given.processes, given.folds)
    except HgldError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
