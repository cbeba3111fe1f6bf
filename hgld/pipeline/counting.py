"""Row accounting of a stage: rows in = rows out + rows dropped.

The rows are compared key by key, from the written files, so that no row is lost without a record
and none is counted twice.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgld.artifacts import ARTIFACTS, Folder, Table
from hgld.errors import HgldError
from hgld.pipeline.lock import Workspace
from hgld.pipeline.stages import Balance, load_function
from hgld.words import plural_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Summary:
    """Statistics of a finished stage: rows in, out and dropped, their unit, and seconds."""

    stage: str
    came_in: int | None
    went_on: int
    dropped: int
    unit: str
    seconds: float


class Imbalance(HgldError):
    """Rows in do not equal rows out plus rows dropped."""


def count_balance(stage: str, balance: Balance, workspace: Workspace, seconds: float) -> Summary:
    """Count rows in, out and dropped of a stage.

    Raises:
        Imbalance: they do not add up; gives the number of wrong rows and names one.
    """
    came_in = _keys(balance.came_in, balance, workspace)
    went_on = _keys(balance.went_on, balance, workspace)
    dropped = _keys(balance.dropped, balance, workspace) if balance.dropped else came_in[:0]
    unit = balance.unit or plural_text(workspace.pipeline.source.class_noun)
    lost = came_in.difference(went_on).difference(dropped)
    both = went_on.intersection(dropped)
    if len(lost) or len(both) or len(went_on) + len(dropped) != len(came_in):
        example = (list(lost) + list(both) + list(went_on.difference(came_in)))[:1]
        raise Imbalance(
            f"{stage}: {len(came_in)} {unit} in, but {len(went_on)} out and "
            f"{len(dropped)} dropped (see {example})"
        )
    return Summary(stage, len(came_in), len(went_on), len(dropped), unit, seconds)


def _keys(name: str, balance: Balance, workspace: Workspace) -> "pd.Index":
    import pandas as pd

    artifact, path, key = ARTIFACTS[name], workspace.path(name), list(balance.key)
    table: Any
    if isinstance(artifact, Folder) and artifact.index:
        table = load_function(artifact.index)(path, columns=key)
    elif isinstance(artifact, Table) and path.suffix == ".parquet":
        table = artifact.read_large(path)  # of which only the key is read
    else:
        table = artifact.read(path)
    return pd.MultiIndex.from_frame(table[key].drop_duplicates())
