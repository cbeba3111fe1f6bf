"""Semantic diff of two review sheets or files of decisions.

A textual diff of the CSVs also shows changed blanks, order and counts. This one reports only the
values whose decision changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hgld.review.annotations import Annotation

__all__ = ["Disagreement", "compare_annotations"]


@dataclass(frozen=True)
class Disagreement:
    """A value whose annotation differs between two files; None: the file does not have it."""

    before: Annotation | None
    after: Annotation | None

    @property
    def in_note_only(self) -> bool:
        """Whether the decision is the same and only the note differs."""
        return bool(self.before and self.after) and all(
            getattr(self.before, name) == getattr(self.after, name)
            for name in ("decision", "supercategory", "kind")
        )

    @property
    def words(self) -> str:
        """One line: the value, the old and the new annotation."""
        one = self.after or self.before
        assert one is not None
        before = self.before.words if self.before else "not there"
        after = self.after.words if self.after else "not there"
        name = one.label if one.label == one.key else f"{one.label} ({one.key})"
        if before == after and self.before and self.after:
            return f"{name}: {after}, {_detail(self.before, self.after)}"
        why = f" ({one.note})" if self.after and one.note else ""
        return f"{name}: {before} -> {after}{why}"


def compare_annotations(
    before: Mapping[str, Annotation], after: Mapping[str, Annotation]
) -> Iterator[Disagreement]:
    """Return the values whose annotation differs, by key."""
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one is None or other is None or _said(one) != _said(other):
            yield Disagreement(one, other)


def _said(annotation: Annotation) -> tuple[str, ...]:
    return annotation.decision, annotation.supercategory, annotation.kind, annotation.note


def _detail(before: Annotation, after: Annotation) -> str:
    """Return the difference of two annotations with the same decision."""
    if before.kind != after.kind:
        return f"kind {before.kind or 'empty'} -> {after.kind or 'empty'}"
    return f"note '{before.note}' -> '{after.note}'"
