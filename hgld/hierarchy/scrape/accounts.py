"""What became of the landmarks: each ends with labels or with exactly one reason."""

from collections import Counter
from collections.abc import Iterable, Mapping

from hgld.errors import HgldError
from hgld.hierarchy.scrape.answers import WikiClass
from hgld.hierarchy.scrape.route import Ending
from hgld.tasks import say

__all__ = ["REASONS", "Accounts", "tell_reasons"]

REASONS = {  # as they stand in misses.csv
    "no_item": "the page has no Wikidata item",
    "no_page": "the page does not exist",
    "no_p31": 'its item has no "instance of"',
    "only_deprecated": "all its values are deprecated",
    "unknown_value": "its value is unknown or none",
    "category_without_topic": "its item is a mere category",
    "redirect_loop": "circular, or too many redirects",
    "bad_url": "not the URL of a Commons page",
}
OK = "ok"


class Accounts:
    """Counts the landmarks by status, and the ways by which they got there."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.over_topic = 0
        self.over_redirects = 0

    def add(self, ending: Ending) -> None:
        """Count one landmark."""
        self.statuses[ending.reason or OK] += 1
        if not ending.reason:
            self.over_topic += ending.over_topic
            self.over_redirects += ending.hops > 0

    def require_all(self, landmarks: int) -> None:
        """See that every landmark has one status and no other than those that there are.

        Raises:
            HgldError: one was lost or counted twice.
        """
        odd = self.statuses.keys() - REASONS.keys() - {OK}
        if odd or self.statuses.total() != landmarks:
            found = ", ".join(f"{count:,} {name}" for name, count in self.statuses.items())
            raise HgldError(
                f"scrape: {landmarks:,} landmarks came in, but these came out: {found or 'none'}; "
                "this is a fault of hgld"
            )

    def describe(self, classes: Mapping[str, WikiClass], advice: str = "") -> str:
        """How many landmarks have labels, and why the others have none, a line a reason.

        ``advice`` says what can be done about the others.
        """
        total, ok = self.statuses.total(), self.statuses[OK]
        missed = total - ok
        lines = [f"{ok:,} of {total:,} landmarks have labels" + (", the others:" if missed else "")]
        lines += [
            f"{count:>9,} {reason:<23}{REASONS[reason]}"
            for reason, count in self.statuses.most_common()
            if reason != OK
        ]
        lines += self._ways()
        lines += _unnamed(classes.values())
        if missed:
            lines.append(f"misses.csv lists them{advice and '; '}{advice}")
        return "\n".join(lines)

    def _ways(self) -> list[str]:
        ways = {"their category's topic": self.over_topic, "soft redirects": self.over_redirects}
        return [f"{n:,} of the labelled came over {way}" for way, n in ways.items() if n]


def tell_reasons(landmarks: int, reasons: Iterable[str], where: str) -> None:
    """Say of roads without a wiki how many landmarks have values, and why the others have none."""
    missed = Counter(reasons)
    lines = [f"{landmarks - missed.total():,} of {landmarks:,} landmarks have values {where}"]
    lines += [f"{count:>9,} {reason}" for reason, count in missed.most_common()]
    say("\n".join([*lines, "misses.csv lists them"] if missed else lines))


def _unnamed(classes: Iterable[WikiClass]) -> list[str]:
    """Say which classes go by their id."""
    ids = sorted({c.class_id for c in classes if c.label == c.class_id})
    if not ids:
        return []
    more = ", ..." if len(ids) > 2 else ""
    what = "class has" if len(ids) == 1 else "classes have"
    return [f"{len(ids):,} {what} no English label: {', '.join(ids[:2])}{more}"]
