"""Ways from key to key: chains of redirects and renames, and ancestors of classes in Wikidata."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import pandas as pd

Key = TypeVar("Key", bound=Hashable)


def steps_up(
    item_id: str,
    above: Callable[[str], Iterable[str]],
    most_hops: int | None = None,
    ends: Collection[str] = (),
) -> dict[str, int]:
    """Return ancestor -> fewest steps up to it, nearest first; an item is 0 steps above itself.

    The way does not go on above an end. Statements may form circles.

    Example:
        >>> above = {"chapel": ["church", "chapel"], "church": ["building"]}
        >>> steps_up("chapel", lambda one: above.get(one, []))
        {'chapel': 0, 'church': 1, 'building': 2}
    """
    steps, here = {item_id: 0}, [item_id]
    while here and (most_hops is None or steps[here[0]] < most_hops):
        hop = steps[here[0]] + 1
        ups = (up for one in here if one not in ends for up in above(one))
        here = [up for up in dict.fromkeys(ups) if up not in steps]
        steps |= dict.fromkeys(here, hop)
    return steps


def shared_ancestors(
    class_ids: Sequence[str], ancestry: pd.DataFrame, most_hops: int | None = None
) -> tuple[list[dict[str, int]], Counter[str]]:
    """Return the ancestors that are above several of the classes.

    Args:
        class_ids: of the values; empty for values without one.
        ancestry: item_id and above of each statement.
        most_hops: most steps up.

    Returns:
        For each class ancestor -> steps up to it, nearest first; and ancestor -> number of
        different classes below it.

    Example:
        >>> ancestry = pd.DataFrame({"item_id": ["fox", "wolf", "pie"],
        ...     "above": ["canid", "canid", "dish"]})
        >>> shared_ancestors(["fox", "pie", "wolf", ""], ancestry)
        ([{'canid': 1}, {}, {'canid': 1}, {}], Counter({'canid': 2}))
    """
    above = defaultdict[str, list[str]](list)
    for item_id, up in zip(ancestry["item_id"], ancestry["above"], strict=True):
        above[item_id].append(up)
    steps = {
        class_id: steps_up(class_id, lambda one: above.get(one, ()), most_hops)
        for class_id in {*class_ids} - {""}
    }
    below = Counter(ancestor for found in steps.values() for ancestor in found)
    shared = {
        class_id: {ancestor: hops for ancestor, hops in found.items() if below[ancestor] > 1}
        for class_id, found in steps.items()
    }
    counts = Counter({ancestor: count for ancestor, count in below.items() if count > 1})
    return [shared.get(class_id, {}) for class_id in class_ids], counts


def chain_of(key: Key, following: Mapping[Key, Key]) -> list[Key]:
    """Return a key, the key that follows it, and so on; a circle ends with its first repeated key.

    Example:
        >>> chain_of("a", {"a": "b", "b": "c"}), chain_of("a", {"a": "b", "b": "a"})
        (['a', 'b', 'c'], ['a', 'b', 'a'])
    """
    chain = [key]
    while chain[-1] in following and chain[-1] not in chain[:-1]:
        chain.append(following[chain[-1]])
    return chain


def is_circular(chain: list[Key]) -> bool:
    """Whether a chain ends in a circle."""
    return chain[-1] in chain[:-1]
