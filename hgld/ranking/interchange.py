"""Read and write rankings in common formats: TREC runs and qrels, and GLDv2 Kaggle submissions.

All of them are lines of text whose fields end at white space or a comma. Every writer
percent-encodes an id that contains such a character: ``a b.jpg`` becomes ``a%20b.jpg``, and
``urllib.parse.unquote`` restores it. Readers return ids as they are in the file. The caller opens
the files.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hgld.errors import InvalidData
from hgld.ranking.checks import check_count

SEPARATES = re.compile(r'[\s%,"\x00-\x1f\x7f]')


def encode_id(image_id: str) -> str:
    """Percent-encode characters that would end a field: white space, comma, quote, and %.

    Raises:
        InvalidData: the id is empty.

    Example:
        >>> encode_id("50% off/é 1.jpg")
        '50%25%20off/é%201.jpg'
    """
    if not image_id:
        raise InvalidData("an id is empty; a ranking needs one for each image")
    return SEPARATES.sub(lambda found: quote(found[0], safe=""), image_id)


def trec_run(rankings: Mapping[str, Sequence[str]], name: str = "hgld") -> Iterator[str]:
    """Lines of a TREC run: query Q0 image rank score name.

    Scores decrease strictly, from the number of images to 1: tools sort by score and break ties
    in different ways, but the ranking itself is to be compared.

    Example:
        >>> list(trec_run({"q": ["b", "a"]}))
        ['q Q0 b 1 2 hgld', 'q Q0 a 2 1 hgld']
    """
    for query, images in rankings.items():
        if len(set(images)) < len(images):
            raise InvalidData(f"query {query}: an image is there twice; expected a ranking")
        fields = encode_id(query), encode_id(name)
        for rank, image in enumerate(images, 1):
            yield f"{fields[0]} Q0 {encode_id(image)} {rank} {len(images) - rank + 1} {fields[1]}"


def trec_qrels(levels: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Lines of TREC judgements: query 0 image gain, with the gain 2^level - 1 as an integer.

    Example:
        >>> list(trec_qrels({"q": {"a": 3, "b": 1}}))
        ['q 0 a 7', 'q 0 b 1']
    """
    for query, judged in levels.items():
        for image, level in judged.items():
            if level < 0:
                raise InvalidData(f"query {query}, image {image}: level {level}; expected >= 0")
            # a Python integer: numpy's int8, as of shared_levels, overflows at level 8
            yield f"{encode_id(query)} 0 {encode_id(image)} {2 ** int(level) - 1}"


def read_trec_run(lines: Iterable[str]) -> dict[str, list[str]]:
    """Images of each query, sorted by decreasing score.

    Raises:
        InvalidData: a line is not one of a run, or an image is listed twice for a query.
    """
    found: dict[str, dict[str, float]] = {}
    for place, (query, _, image, _, score, _) in _split_lines(lines, "run", 6):
        scores = found.setdefault(query, {})
        if image in scores:
            raise InvalidData(f"{place}: image {image} is there twice for {query}")
        scores[image] = _number(score, f"{place}: score")
    # sorted() is stable: equal scores keep the order of the file.
    return {q: sorted(s, key=lambda image: -s[image]) for q, s in found.items()}


def read_trec_qrels(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Gain of each judged image of each query.

    Raises:
        InvalidData: a line is not one of qrels, or an image is judged twice for a query.
    """
    found: dict[str, dict[str, int]] = {}
    for place, (query, _, image, text) in _split_lines(lines, "qrels", 4):
        gain, gains = _number(text, f"{place}: gain"), found.setdefault(query, {})
        if not gain.is_integer():
            raise InvalidData(f"{place}: gain {text!r}; expected a whole number")
        if image in gains:
            raise InvalidData(f"{place}: image {image} is judged twice for {query}")
        gains[image] = int(gain)
    return found


def _split_lines(lines: Iterable[str], kind: str, size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each line with text, for messages, and its fields."""
    for number, line in enumerate(lines, 1):
        place, fields = f"{kind} line {number}", line.split()
        if len(fields) not in (0, size):
            raise InvalidData(f"{place}: {len(fields)} fields; expected {size}")
        if fields:
            yield place, fields


def kaggle_lines(rankings: Mapping[str, Sequence[str]], k: int = 100) -> Iterator[str]:
    """Lines of a GLDv2 retrieval submission: the header, then id,images with the first k images.

    Example:
        >>> list(kaggle_lines({"q": ["b", "a"]}))
        ['id,images', 'q,b a']
    """
    yield "id,images"
    for query, images in rankings.items():
        yield f"{encode_id(query)},{' '.join(map(encode_id, images[:k]))}"


def read_kaggle(lines: Iterable[str]) -> dict[str, list[str]]:
    """Images of each query of a submission, in file order, including duplicates.

    Raises:
        InvalidData: it is empty, the columns id and images are missing, a row has more cells, or a
            query is listed twice.
    """
    found: dict[str, list[str]] = {}
    for place, row in _rows(lines, "submission"):
        if row.get("id") is None or row.get("images") is None:
            raise InvalidData(f"{place}: expected the columns id and images")
        if row["id"] in found:
            raise InvalidData(f"{place}: query {row['id']} is there twice")
        found[row["id"]] = row["images"].split()
    return found


def _rows(lines: Iterable[str], kind: str) -> Iterator[tuple[str, dict[str | Any, str | Any]]]:
    """Yield the place of each row, for messages, and its cells; refuse more than there are columns.

    Commas between images would leave all but the first one out.
    """
    csv.field_size_limit(2**31 - 1)  # one cell holds all images of a query
    rows = csv.DictReader(lines)
    if not rows.fieldnames:
        raise InvalidData(f"{kind}: is empty; expected a CSV with a header")
    for number, row in enumerate(rows, 2):  # the header is line 1
        place = f"{kind} line {number}"
        if None in row:
            raise InvalidData(
                f"{place}: {len(row[None])} more cells than columns; expected blanks between images"
            )
        yield place, row


@dataclass(frozen=True)
class KaggleScore:
    """mAP@k by the official rules.

    Args:
        mean: mean AP@k of the queries of each usage.
        per_query: AP@k of each query.
        missing: queries that are not in the submission; they count as 0.
        ignored: queries without a relevant image (``None``); they are not counted.
    """

    mean: dict[str, float]
    per_query: dict[str, float]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]


def kaggle_score(
    submission: Mapping[str, Sequence[str]], solution: Iterable[str], k: int = 100
) -> KaggleScore:
    """Score a submission against the lines of ``retrieval_solution_v2.1.csv``.

    AP@k = (1 / min(R, k)) sum over the first k of precision at each relevant image. A repeated
    image scores nothing but keeps its rank. A missing query counts as 0; a query whose relevant
    images are ``None``, or whose usage is ``Ignored``, is left out.

    Args:
        submission: images of each query, best first; ids as in the solution or percent-encoded.
        solution: lines with the columns id, images and Usage.
        k: cut-off.

    Returns:
        Mean by usage (Public, Private), and the value of each query.

    Raises:
        InvalidData: the solution lacks a column or has a query twice, or a query of the submission
            is not in it.

    Example:
        >>> solution = ["id,images,Usage", "q,a b,Public", "n,None,Public"]
        >>> kaggle_score({"q": ["a", "x", "b"]}, solution).mean
        {'Public': 0.8333333333333333}
    """
    check_count(k=k)
    values: dict[str, float] = {}
    usages: dict[str, list[float]] = {}
    met: set[str] = set()
    missing, ignored = [], []
    for place, row in _rows(solution, "solution"):
        query, images, usage = row.get("id"), row.get("images"), row.get("Usage")
        if not query or images is None or usage is None:
            raise InvalidData(f"{place}: expected the columns id, images and Usage")
        if query in met:
            raise InvalidData(f"{place}: query {query} is there twice")
        encoded = encode_id(query)
        met |= {query, encoded}
        # The official solution has None for a query without relevant images.
        relevant = set(images.split()) - {"None"}
        if not relevant or usage == "Ignored":
            ignored.append(query)
            continue
        found = submission.get(encoded, submission.get(query))
        if found is None:
            missing.append(query)
        raw = {encode_id(image): image for image in relevant}
        ranked = [raw.get(image, image) for image in (found or ())[:k]]
        values[query] = _ap_at(ranked, relevant, k)
        usages.setdefault(usage, []).append(values[query])
    # A misspelt query would otherwise count as missing, with 0.
    unknown = set(submission) - met
    if unknown:
        raise InvalidData(f"submission: query {min(unknown)} is not in the solution")
    means = {usage: sum(own) / len(own) for usage, own in sorted(usages.items())}
    return KaggleScore(means, values, tuple(missing), tuple(ignored))


def _ap_at(images: Sequence[str], relevant: set[str], k: int) -> float:
    """AP@k of the first k images."""
    seen: set[str] = set()
    total = 0.0
    for rank, image in enumerate(images, 1):
        if image in relevant and image not in seen:
            seen.add(image)
            total += len(seen) / rank
    return total / min(len(relevant), k)


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        # Text, nan and inf get the same message.
        number = math.nan
    if not math.isfinite(number):
        raise InvalidData(f"{what} {text!r} is not a number")
    return number
