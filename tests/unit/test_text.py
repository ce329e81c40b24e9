"""Tests of ``migrator.text``, and that numbers before a noun are written by it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import migrator
from migrator.text import listed, rate_words, visible

ROOT = Path(migrator.__file__).parent
BY_US = {"counted", "grouped", "rate_words", "size_words"}
NOUN = re.compile(
    r" (?:(?!(?:has|had|holds|of|sends|takes) )[\w-]+ )?"
    r"(?:rows?|timeouts?|messages?|batch(?:es)?)\b"
)
"""With one word between at most, which is no verb: ``3 claimed rows``, not ``Sales has rows``."""
OTHERWISE = {
    ("web/events.py", "facts.actor"): "a name, and what that person did with rows",
}
"""By file and what is shown, with the reason."""


def uncounted(code: str) -> Iterator[str]:
    """Yield what an f-string in *code* shows right before a noun, and did not count."""
    for node in ast.walk(ast.parse(code)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for shown, text in pairwise(parts):
            if not isinstance(shown, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            called = shown.value.func if isinstance(shown.value, ast.Call) else None
            is_ours = isinstance(called, ast.Name) and called.id in BY_US
            if not is_ours and NOUN.match(str(text.value)):
                yield ast.unparse(shown.value)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('f"{n} rows"', ["n"]),
        ('f"of {len(a)} claimed timeouts, {b} batches"', ["len(a)", "b"]),
        ('f"{n:g} messages/s"', ["n"]),
        ("f\"{counted(n, 'row')} messages\"", []),
        ('f"{source} has rows, {name} rowset, {n} bytes"', []),
    ],
)
def test_what_is_not_counted_is_found(code: str, found: list[str]) -> None:
    """A lint that finds nothing proves nothing."""
    assert [*uncounted(code)] == found


def test_numbers_before_a_noun_are_counted() -> None:
    """In one style, and one timeout is not *1 timeouts*."""
    found = {
        (str(path.relative_to(ROOT)), shown)
        for path in ROOT.rglob("*.py")
        if path.name != "text.py"
        for shown in uncounted(path.read_text(encoding="utf-8"))
    }
    assert sorted(found - OTHERWISE.keys()) == []
    assert sorted(OTHERWISE.keys() - found) == [], "these need no exemption any more"


def test_alerts_count_without_a_noun() -> None:
    """Their language has no plural: *batches: 1*, not *1 batches*."""
    text = (ROOT.parent / "monitoring" / "alerts.yml").read_text(encoding="utf-8")
    summaries = re.findall(r"summary: (.*)", text)
    assert len(summaries) > 10
    assert [each for each in summaries if re.search(r"\{\{ \$value \}\} \w", each)] == []


@pytest.mark.parametrize(
    ("per_s", "words"),
    [(2000.0, "2 000 messages/s"), (0.5, "0.5 messages/s"), (1.0, "1 message/s")],
)
def test_rates_are_told_as_other_numbers_are(per_s: float, words: str) -> None:
    """Grouped, and with a decimal if they are small."""
    assert rate_words(per_s) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe 队列 😀", "Größe 队列 😀"),
        ("a\0b\x1b[2J", r"a\x00b\x1b[2J"),
        ("half \ud83d", r"half \ud83d"),
        ("two\nlines\r\n", "two\nlines\\r\n"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text: str, shown: str) -> None:
    """Rows are written by strangers."""
    assert visible(text, keep="\n") == shown


@pytest.mark.parametrize(
    ("names", "words"),
    [("", ""), ("ab", "a, b"), ("abc", "a, b and 1 more"), ("ab" * 700, "a, b and 1 398 more")],
)
def test_of_many_names_the_first_are_told(names: str, words: str) -> None:
    """And how many there are besides."""
    assert listed([*names], 2) == words
