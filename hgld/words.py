"""Formatting of text for messages: counts, sizes, durations, single lines, "did you mean".

It imports the standard library only, so that ``hgld doctor`` can use it if a package is missing.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from textwrap import wrap
from unicodedata import category, combining, east_asian_width, normalize

# control characters: a workbook cannot store them, so a label with one would not match its row
CONTROLS = {code: None for code in (*range(32), 0xFFFE, 0xFFFF) if not chr(code).isspace()}
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")  # soft hyphens, zero-width characters
NUMBER = re.compile(r"(-?)0*([0-9]+?)(?:\.([0-9]*?)0*)?")  # sign, whole part, fraction
# a URL up to its password; of a web address, a colon may come before a port, and an @ after the
# host; a password that is not percent-encoded may hold an @ and slashes, so that the last @ ends it
# unless a number of a version follows: me:secret@host/set@2
PASSWORD = re.compile(
    r"((?:(?P<web>https?)|(?<!http)(?<!https)):/+[^/\s:@]*):(?(web)(?!\d*[/?#]))"
    r"(?:\S*@(?!v?\d+(?![\w.-]))|\S*?@)",
    re.IGNORECASE,
)

# names of levels that are adjectives: "another coarse" needs a noun
WHICH = (
    "base bottom broad coarse coarser coarsest fine finer finest first high low lower main medium "
    "mid middle narrow second sub super third top upper"
)


def count_text(number: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    Example:
        >>> count_text(1, "value"), count_text(1234, "value"), count_text(0, "class")
        ('1 value', '1,234 values', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural_text(noun)}"


def plural_text(noun: str) -> str:
    """Return the plural of a regular noun.

    Example:
        >>> plural_text("landmark"), plural_text("class"), plural_text("query")
        ('landmarks', 'classes', 'queries')
    """
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith("s") else "s")


def verb_text(number: int, verb: str) -> str:
    """Return a verb in the plural, or in the singular if the count of its subject is 1.

    Example:
        >>> verb_text(2, "have"), verb_text(1, "have"), verb_text(1, "are"), verb_text(1, "find")
        ('have', 'has', 'is', 'finds')
    """
    return {"are": "is", "have": "has"}.get(verb, f"{verb}s") if number == 1 else verb


def part_text(part: int, whole: int, noun: str, verb: str) -> str:
    """Return the count of a part of some things, with its verb.

    Example:
        >>> part_text(1, 6, "query", "have"), part_text(2, 1234, "row", "are")
        ('1 of 6 queries has', '2 of 1,234 rows are')
    """
    return f"{part:,} of {count_text(whole, noun)} {verb_text(part, verb)}"


def shortened(text: str, longest: int, last: int = 0) -> str:
    """Return the text, with "…" for its end if it has more than ``longest`` characters.

    The ``last`` characters stay, as for a path, whose end is its most informative part.

    Example:
        >>> shortened("church", 6), shortened("church", 5)
        ('church', 'chur…')
        >>> shortened("photos/2019/summer/street-0001.jpg", 24, last=16)
        'photos/…/street-0001.jpg'
    """
    if len(text) <= longest:
        return text
    return f"{text[: longest - 1 - last]}…{text[len(text) - last :]}"


def padded(text: str, width: int) -> str:
    """Return the text with blanks up to a width in columns; Chinese letters take two.

    Example:
        >>> padded("lake", 6) + "|", padded("熊猫", 6) + "|"
        ('lake  |', '熊猫  |')
    """
    return text + " " * (width - columns_of(text))


def columns_of(text: str) -> int:
    """Return the columns that a text takes on a terminal.

    Example:
        >>> columns_of("lake"), columns_of("熊猫")
        (4, 4)
    """
    letters = (letter for letter in text if not combining(letter))
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in letters)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the text in lines, broken between words only; those below the first are indented.

    Example:
        >>> wrapped("one-and-twenty churches", 10, indent=2)
        ['one-and-twenty', '  churches']
    """
    below = " " * indent
    return wrap(
        text, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def some_of(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first texts, and the number of the others.

    Example:
        >>> some_of(["a", "b", "c"], 2), some_of(["a", "b", "c"], 2, "; "), some_of(["a"], 2)
        ('a, b and 1 more', 'a; b; and 1 more', 'a')
    """
    shown = between.join(texts[:most])
    before = " " if between == ", " else between
    return f"{shown}{before}and {len(texts) - most:,} more" if len(texts) > most else shown


def duration_text(seconds: float) -> str:
    """Return a duration in at most two units.

    Example:
        >>> duration_text(59_700), duration_text(200), duration_text(120), duration_text(0.2)
        ('16 h 35 min', '3 min 20 s', '2 min', '1 s')
    """
    minutes, rest = divmod(max(1, round(seconds)), 60)
    if minutes >= 60:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest} s".removesuffix(" 0 s")
    return f"{rest} s"


def progress_text(done: int, total: int | None, seconds: float = 0.0, before: int = 0) -> str:
    """Return progress as a percentage or a count, with the rate and the time left if known.

    Args:
        done: number of finished items.
        total: number of items; None: unknown.
        seconds: time since the work began.
        before: items that were finished when it began.

    Example:
        >>> progress_text(1850, 5000), progress_text(1850, None)
        ('37 % (1,850 of 5,000)', '1,850 done')
        >>> progress_text(1850, 5000, 185.0)
        '37 % (1,850 of 5,000), 10/s, about 5 min 15 s left'
        >>> progress_text(3, 4, 90.0, before=2)
        '75 % (3 of 4), 1 min 30 s each, about 1 min 30 s left'
    """
    text = f"{done_text(done, total)} ({done:,} of {total:,})" if total else f"{done:,} done"
    if done <= before or not seconds:
        return text
    rate = (done - before) / seconds
    pace = f"{rate:,.{rate < 10:d}f}/s" if rate > 1 else f"{duration_text(1 / rate)} each"
    left = f", about {duration_text((total - done) / rate)} left" if total and total > done else ""
    return f"{text}, {pace}{left}"


def percent_text(value: float | None, unknown: str = "–", digits: int = 1) -> str:
    """Return a share in percent, as tables have it: without the sign.

    Example:
        >>> percent_text(0.5), percent_text(None), percent_text(float("nan"), "-")
        ('50.0', '–', '-')
    """
    return unknown if value is None or math.isnan(value) else f"{100 * value:z.{digits}f}"


def share_text(share: float, digits: int = 0) -> str:
    """Return a share in percent with its sign, as sentences have it.

    Example:
        >>> share_text(0.5), share_text(0.9375, digits=1)
        ('50 %', '93.8 %')
    """
    return f"{percent_text(share, digits=digits)} %"


def done_text(done: int, total: int, digits: int = 0) -> str:
    """Return the share that is done in percent, rounded down: it is 100 % only at the end.

    Example:
        >>> done_text(999, 1000), done_text(999, 1000, digits=1), done_text(1000, 1000)
        ('99 %', '99.9 %', '100 %')
    """
    steps = 100 * 10**digits
    return share_text(steps * done // total / steps, digits)


def size_text(size_bytes: float) -> str:
    """Return a size in three digits, with a decimal unit (1 kB = 1000 B).

    Example:
        >>> size_text(1234567), size_text(999_900)
        ('1.23 MB', '1 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 999.5:  # above, three digits would be 1e+03
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"


def level_noun(name: str) -> str:
    """Return the name of a level as a noun.

    Example:
        >>> level_noun("landmark"), level_noun("coarse"), level_noun("level_2")
        ('landmark', 'coarse class', 'level 2 class')
    """
    words = name.replace("_", " ")
    is_noun = words.lower() not in WHICH.split() and not words[-1:].isdigit()
    return words if is_noun else f"{words} class"


def level_classes(name: str) -> str:
    """Return the classes of a level as a plural.

    Example:
        >>> level_classes("landmark"), level_classes("level_2"), level_classes("class")
        ('landmark classes', 'level 2 classes', 'classes')
    """
    return f"{name.replace('_', ' ')} classes" if name != "class" else "classes"


def shared_text(level: int, names: Sequence[str]) -> str:
    """Describe the finest level that two images share.

    Args:
        level: number of levels they share.
        names: of all levels, coarse to fine.

    Example:
        >>> names = ("kind", "supercategory", "landmark")
        >>> shared_text(2, names), shared_text(0, names)
        ('same supercategory', 'another kind')
    """
    return f"same {level_noun(names[level - 1])}" if level else f"another {level_noun(names[0])}"


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a "did you mean" clause, or an empty text if no word is similar.

    Example:
        >>> nearest("cluster", ["clusters", "seed"])
        "; did you mean 'clusters'?"
        >>> nearest("nonsense", ["convent", "monument"])
        ''
    """
    words = list(words)
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    close += [other for other in words if len(word) > 2 and other.startswith(word)]  # "val"
    return f"; did you mean '{close[0]}'?" if close else ""


def spoken_name(name: str) -> str:
    """Return the name of a class with blanks for underscores, as folders cannot always have them.

    Example:
        >>> spoken_name("apple_pie ")
        'apple pie'
    """
    return single_blanks(name.replace("_", " "))


def folded_name(name: str) -> str:
    """Return the name of a class as names are compared: composed, spoken, in small letters.

    Example:
        >>> folded_name("Ile_d'Orle\u0301ans") == folded_name("ile d'Orl\u00e9ans")
        True
    """
    return normalize("NFC", spoken_name(name)).casefold()


def describe_twins(places: Mapping[str, str]) -> str:
    """Describe names that may mean one class; empty if there are none.

    They differ in case, underscores or invisible characters, or in the form of a number.

    Args:
        places: name of each class -> its first place; empty: it has none.

    Example:
        >>> describe_twins({"1": "row 2", "1.0": "row 9", "10": "row 3"}).partition(";")[0]
        "'1' (row 2) and '1.0' (row 9) are one number"
        >>> describe_twins({"Red_fox": "", "red fox": "", "Elk": "", "elk": ""}).partition(";")[0]
        "'Red_fox' and 'red fox' differ in case or underscores alone, and 1 more like these"
        >>> describe_twins({"lake": "", "Lake": "", "LAKE": ""}).partition(";")[0]
        "'lake', 'Lake' and 'LAKE' differ in case or underscores alone"
    """
    alike: dict[str, list[str]] = {}
    for name in places:
        folded = folded_name(INVISIBLE.sub("", name))
        if number := NUMBER.fullmatch(folded):
            folded = f"{number[1]}{number[2]}.{number[3] or ''}"
        alike.setdefault(folded, []).append(name)
    twins = [names for names in alike.values() if len(names) > 1]
    if not twins:
        return ""
    *others, last = (f"'{name}'" + f" ({places[name]})" * bool(places[name]) for name in twins[0])
    are_numbers = all(map(NUMBER.fullmatch, twins[0]))
    how = "are one number" if are_numbers else "differ in case or underscores alone"
    more = f", and {len(twins) - 1:,} more like these" if len(twins) > 1 else ""
    return (
        f"{', '.join(others)} and {last} {how}{more}; they are different classes: if one is meant, "
        "write one name"
    )


def single_blanks(text: str) -> str:
    r"""Return the text on one line: each run of blanks as one space, no control characters.

    All Unicode blanks count, since labels come with no-break, thin and double blanks, and two
    spellings of one label must not become two values.

    Example:
        >>> single_blanks("quarter\u00a0 of\x07\n hamburg ")
        'quarter of hamburg'
    """
    return " ".join((text if text.isprintable() else text.translate(CONTROLS)).split())


def holds_controls(text: str) -> bool:
    r"""Whether a text has a line break or another control character.

    The joiners of emoji and of Persian and Indic letters are none, nor are letters that are newer
    than Python's tables, which ``str.isprintable`` all refuses.

    Example:
        >>> holds_controls("bell\x07"), holds_controls("می\u200cوه"), holds_controls("a\u2028b")
        (True, False, True)
    """
    return any(category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text)
