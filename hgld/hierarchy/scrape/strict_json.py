"""JSON as servers and dumps send it, without what Python's parser accepts beyond the standard.

Python reads lone surrogates, which no file can hold and no terminal can show, and NaN. Text with
either is damaged: it has to be found here, before a part of it is stored.
"""

import json
from typing import Any, NoReturn

__all__ = ["parse_json"]


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 JSON (with or without a byte order mark).

    Raises:
        ValueError: the data is not JSON, is nested too deeply, or holds a lone surrogate.
    """
    text = data.decode("utf-8-sig")
    try:
        document = json.loads(text, parse_constant=_refuse)
        if "\\u" in text:  # the only way in which a surrogate can get past the decoding
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
