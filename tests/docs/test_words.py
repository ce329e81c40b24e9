"""The program speaks plain English: an actor is named, and no word of a private dialect comes back.

Names count as well as texts, so that a word in a name does not return to a sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "migrator"
WORDS = (
    *("nobody", "somebody", "whoever", "whatever became", "what became of"),
    *("tells of", "told of", "lets go", "let go of", "way out", "by hand of", "of ours"),
    *("beside it", "to be had", "left to others", "patience", "trouble"),
)
QUOTED = {
    # the state table is not reworded
    "ledger/states.py": (
        "what nobody could tell has come back whole",
        "ours after all, or none of ours",
    ),
}
"""Sentences in which a word may stay."""
NOT_YET = frozenset(
    {
        *("cli", "decommission", "delays", "ledger/failover.py", "ledger/report.py"),
        *("service", "status", "stores", "web"),
    }
)
"""Folders and files whose words are still to be replaced: never add one."""
_PATTERN = "|".join(words.replace(" ", r"[\s_]+") for words in WORDS)
_FOUND = re.compile(rf"(?<![a-z])({_PATTERN})(?![a-z])", re.IGNORECASE)


def sources() -> list[Path]:
    return sorted(
        path for kind in ("*.py", "*.html", "*.js", "*.css") for path in PACKAGE.rglob(kind)
    )


def found_in(path: Path) -> list[str]:
    name, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
    for quoted in QUOTED.get(name, ()):
        assert quoted in text, f"{name} no longer says {quoted!r}: take it out of QUOTED"
        text = text.replace(quoted, "")
    return [
        f"{name}:{text[: match.start()].count(chr(10)) + 1} {match[0]!r}"
        for match in _FOUND.finditer(text)
    ]


def test_no_word_of_a_private_dialect_is_left() -> None:
    """Say who acts: no consumer, the operator, another daemon, other senders."""
    done = [
        path
        for path in sources()
        if not {path.relative_to(PACKAGE).as_posix(), path.relative_to(PACKAGE).parts[0]} & NOT_YET
    ]
    assert len(done) > 50
    assert [each for path in done for each in found_in(path)] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Nobody waits", 1),
        ("way\n    out", 1),
        ("_PATIENCE_S", 1),
        ("Troubleshoot", 0),
        ("somebody_else", 1),
        ("a level lets\nGO", 1),
    ],
)
def test_words_are_found_in_names_and_across_lines(text: str, count: int) -> None:
    assert len(_FOUND.findall(text)) == count
