"""Chains of keys: redirects of pages, renamed supercategories, merged clusters."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


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
