"""A server's answer as values, so that one odd document does not hide a page of others.

Pure. RavenDB keeps documents that Python's parser gives up on, and numbers that Python would not
write as they were. Neither is a timeout of NServiceBus's; each is shown as what nobody can claim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

DEEPEST: Final = 100
"""How deep what is in a document may be nested: headers are two deep, and whatever is put into
the ledger has to be written and read again on any stack."""
_KEPT_DEPTH: Final = 3 * DEEPEST
"""Levels of an answer that are kept where it is nested deeper than the parser goes."""
_LONGEST_NUMBER: Final = 400
"""Characters; Python takes no whole number of some thousand digits."""
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Inexact:
    """A number that would be another text when it is stored again."""

    text: str


def parsed(raw: bytes) -> Any:
    """Return the JSON value that *raw* tells; what is nested too deep is cut, and still too deep.

    Raises:
        ValueError: It is no JSON.
    """
    text = raw.decode(json.detect_encoding(raw), "surrogatepass")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return _DECODER.decode(_shallow(text))


def why_not_kept(*parts: Mapping[str, Any]) -> str | None:
    """Return why *parts* of a document could not be stored again as they are; None: they could."""
    level: list[Any] = list(parts)
    for _ in range(DEEPEST):
        below = []
        for each in _inside(level):
            if isinstance(each, Inexact):
                return "it has a number that would not be stored again as it is"
            if isinstance(each, dict | list):
                below.append(each)
        if not below:
            return None
        level = below
    return f"it is nested more than {DEEPEST} deep"


def _inside(level: list[Any]) -> Iterator[Any]:
    for each in level:
        yield from each.values() if isinstance(each, Mapping) else each


def _shallow(text: str) -> str:
    """Return *text* with null for whatever is deeper than ``_KEPT_DEPTH``."""
    kept: list[str] = []
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth == _KEPT_DEPTH + 1:
                kept += [text[begin : token.start()], "null"]
        elif sign in ("]", "}"):
            depth -= 1
            if depth == _KEPT_DEPTH:
                begin = token.end()
    if depth > _KEPT_DEPTH:
        raise ValueError("the answer ends too early")
    return "".join([*kept, text[begin:]])


def _whole(text: str) -> int | Inexact:
    if len(text) <= _LONGEST_NUMBER and str(found := int(text)) == text:
        return found
    return Inexact(text)


def _fraction(text: str) -> float | Inexact:
    found = float(text)
    return found if repr(found) == text else Inexact(text)


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_fraction)
