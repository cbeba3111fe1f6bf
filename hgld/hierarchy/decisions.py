"""The decision in force for each value.

Decisions are only ever appended: the last row of a key is in force, all earlier ones are history.
A value is found by its class id, since labels change and class ids do not; where no decision names
the id, one that names the exact label counts, so that values without an id can be decided, and
decisions made before the ids were known go on to hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from hgld.hierarchy.columns import records
from hgld.words import single_blanks

__all__ = ["PLACING", "Decided", "Decision", "key_types_of", "kinds_of"]

PLACING = ("keep", "move")
DECIDING = (*PLACING, "drop")


@dataclass(frozen=True)
class Decision:
    """One row of the decisions.

    Attributes:
        place: its place in the table, from 0 on.
        number: how many decisions its key had with it.
        evidence: what the value was then (``evidence_of``); empty where that is not known.
    """

    place: int
    key: str
    key_type: str
    decision: str
    supercategory: str
    kind: str
    who: str
    when: str
    why: str
    evidence: str = ""
    number: int = 1

    @property
    def places(self) -> bool:
        """True if it puts the value into a supercategory."""
        return self.decision in PLACING

    @property
    def decides(self) -> bool:
        """True if the value is decided; ``unsure`` leaves it open."""
        return self.decision in DECIDING


class Decided:
    """The decisions in force.

    Example:
        >>> table = pd.DataFrame({"key": ["pub"] * 2, "key_type": ["label"] * 2,
        ...     "decision": ["keep", "drop"], "supercategory": ["restaurant", ""],
        ...     "kind": ["human-made", ""], "who": ["a", "b"], "when": ["2026-01-01"] * 2,
        ...     "why": ["", ""], "supersedes": ["", ""]})
        >>> Decided(table).find("", "pub").decision
        'drop'
    """

    def __init__(self, decisions: pd.DataFrame) -> None:
        self._by_key: dict[tuple[str, str], list[Decision]] = {}
        for place, row in enumerate(records(decisions)):
            key = single_blanks(row["key"])
            evidence = row.get("evidence")
            made = self._by_key.setdefault((row["key_type"], key), [])
            decision = Decision(
                place,
                key,
                row["key_type"],
                row["decision"],
                single_blanks(row["supercategory"]),
                row["kind"],
                row["who"],
                row["when"],
                row["why"],
                evidence if isinstance(evidence, str) else "",
                len(made) + 1,
            )
            made.append(decision)

    def find(self, class_id: str, instance_of: str) -> Decision | None:
        """The decision in force for a value, or None where there is none."""
        made = self.history(class_id, instance_of)
        return made[-1] if made else None

    def history(self, class_id: str, instance_of: str) -> Sequence[Decision]:
        """All decisions on a value, the one in force last: on its label first, then on its id."""
        by_id = self._by_key.get(("qid", class_id), []) if class_id else []
        return [*self._by_key.get(("label", instance_of), []), *by_id]

    def of_values(self, values: pd.DataFrame) -> list[Decision | None]:
        """The decision in force for each row of a table of values."""
        pairs = zip(values["class_id"], values["instance_of"], strict=True)
        return [self.find(class_id, instance_of) for class_id, instance_of in pairs]

    def all(self) -> list[Decision]:
        """All decisions in force, in the order of the file."""
        in_force = (made[-1] for made in self._by_key.values())
        return sorted(in_force, key=lambda decision: decision.place)


def kinds_of(taxonomy: pd.DataFrame) -> Mapping[str, str]:
    """Supercategory -> its kind."""
    names = [single_blanks(name) for name in taxonomy["supercategory"]]
    return dict(zip(names, taxonomy["kind"], strict=True))


def key_types_of(values: pd.DataFrame) -> list[str]:
    """By what each value is keyed: ``qid`` where it has a class id, else ``label``."""
    return ["qid" if class_id else "label" for class_id in values["class_id"]]
