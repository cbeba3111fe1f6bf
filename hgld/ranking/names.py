"""A metric's name is the metric: ``mAP@100:landmark`` is parsed, computed, and is the result's key.

NAME[(option=value)][@k][:level]. The level is one of the data set's level names or its number,
1 for the coarsest; where a metric has a level and none is named, it is the finest.
"""

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from hgld.errors import UsageError

__all__ = ["KINDS", "MetricName", "parse"]

FORMS: dict[str, tuple[str | None, Literal["no", "may", "must"], bool]] = {
    # metric: (option, @k, has a level)
    "AP": (None, "no", True),
    "ASI": (None, "no", False),
    "H-AP": ("alpha", "no", False),
    "H-P": ("alpha", "must", False),
    "H-R": ("alpha", "must", False),
    "NDCG": (None, "may", False),
    "R": (None, "must", True),
    "TR": (None, "must", True),
    "mAP": (None, "must", True),
    "wAP": ("weights", "no", False),
}
KINDS = {  # numbers by which the kernels know a metric; up to TR it is of one level
    "AP": 0, "mAP@R": 1, "mAP": 2, "R": 3, "TR": 4, "NDCG": 5, "ASI": 6, "H-AP": 7, "wAP": 7,
    "H-R": 8, "H-P": 9,
}  # fmt: skip
PATTERN = re.compile(
    r"(?P<metric>[A-Za-z-]+)(\((?P<option>\w+)=(?P<value>[^()]*)\))?(@(?P<k>R|[0-9]+))?"
    r"(:(?P<level>[^:@()]+))?"
)
EXAMPLES = "H-AP, NDCG, ASI, AP:landmark, mAP@R:landmark, mAP@100:landmark, R@1:kind"


@dataclass(frozen=True)
class MetricName:
    """A parsed name; ``str`` gives it back.

    Args:
        metric: H-AP, NDCG, ASI, AP, mAP, R, TR, H-R, H-P or wAP.
        alpha: of Eq. 20, None is 1.
        weights: of wAP, one a level, coarse to fine; empty is the same for all.
        k: cut-off; 0 is R, the query's number of positives; None is the whole list.
        level: a level's name or number; None is the finest.
    """

    metric: str
    alpha: float | None = None
    weights: tuple[float, ...] = ()
    k: int | None = None
    level: str | None = None

    def __str__(self) -> str:
        option = "" if self.alpha is None else f"(alpha={_text(self.alpha)})"
        if self.weights:
            option = f"(weights={'/'.join(_text(weight) for weight in self.weights)})"
        cut = "" if self.k is None else f"@{self.k or 'R'}"
        return f"{self.metric}{option}{cut}" + ("" if self.level is None else f":{self.level}")

    @property
    def kind(self) -> int:
        """The number by which the kernels know it."""
        return KINDS["mAP@R" if self.metric == "mAP" and not self.k else self.metric]

    def relevance_key(self, num_levels: int) -> tuple[float, ...]:
        """All that its relevance depends on: alpha of Eq. 20, or -1 and weights of Property 1.

        Raises:
            UsageError: there is not one weight for each level, or their sum is not 1.
        """
        if self.metric != "wAP":
            return (1.0 if self.alpha is None else self.alpha,)
        weights = self.weights or (1.0 / num_levels,) * num_levels
        if len(weights) != num_levels or abs(sum(weights) - 1.0) > 1e-6:
            raise UsageError(
                f"metric {self}: {len(weights)} weights with sum {sum(weights):g}; "
                f"expected one for each of {num_levels} levels, with sum 1"
            )
        return (-1.0, *weights)

    def at_level(self, level_names: tuple[str, ...]) -> int:
        """Number of the level, 1 for the coarsest.

        Example:
            >>> parse("R@1:kind").at_level(("kind", "landmark"))
            1
        """
        if self.level is None:
            return len(level_names)
        if self.level in level_names:
            return level_names.index(self.level) + 1
        if self.level.isdecimal() and 1 <= int(self.level) <= len(level_names):
            return int(self.level)
        raise UsageError(
            f"metric {self}: level {self.level!r} is none of {', '.join(level_names)} "
            f"(nor 1..{len(level_names)})"
        )


def parse(name: str) -> MetricName:
    """The metric that a name says.

    Raises:
        UsageError: no such metric, or a part that it needs or does not take.

    Example:
        >>> parse("mAP@R:landmark")
        MetricName(metric='mAP', alpha=None, weights=(), k=0, level='landmark')
        >>> str(parse("H-AP(alpha=2)"))
        'H-AP(alpha=2)'
    """
    match = PATTERN.fullmatch(name)
    if match is None or match["metric"] not in FORMS:
        near = _nearest(match["metric"] if match else name)
        raise UsageError(f"no metric {name!r}; nearest is {near!r}; examples: {EXAMPLES}")
    option, cut, levelled = FORMS[match["metric"]]
    if match["option"] not in (None, option):
        raise UsageError(f"metric {name!r} takes {option or 'no option'}, not {match['option']}")
    if (match["k"] is None and cut == "must") or (match["k"] is not None and cut == "no"):
        raise UsageError(f"metric {name!r} {'needs' if cut == 'must' else 'takes no'} @k")
    if match["k"] == "R" and match["metric"] != "mAP":
        raise UsageError(f"metric {name!r}: only mAP is cut at R")
    if match["level"] and not levelled:
        raise UsageError(f"metric {name!r} takes no level: it is over all levels")
    numbers = _numbers(name, match["value"])
    return MetricName(
        match["metric"],
        numbers[0] if option == "alpha" and numbers else None,
        numbers if option == "weights" else (),
        _cut(name, match["k"]),
        match["level"],
    )


def _text(number: float) -> str:
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _nearest(word: str) -> str:
    by_lower = {form.lower(): form for form in FORMS}
    return by_lower[difflib.get_close_matches(word.lower(), by_lower, 1, 0.0)[0]]


def _numbers(name: str, text: str | None) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split("/")) if text is not None else ()
    except ValueError:
        hint = "; weights are separated by '/': wAP(weights=0.2/0.3/0.5)" if "wAP" in name else ""
        raise UsageError(f"metric {name!r}: {text!r} is not a number{hint}") from None
    if any(not 0 <= number < float("inf") for number in numbers):
        raise UsageError(f"metric {name!r}: {text!r}; expected numbers >= 0")
    return numbers


def _cut(name: str, text: str | None) -> int | None:
    if text is None or text == "R":
        return None if text is None else 0
    if int(text) < 1:
        raise UsageError(f"metric {name!r}: @{text}; expected 1 or more")
    return int(text)
