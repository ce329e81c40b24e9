"""What a check found out: fine, worth knowing, refused, or not checked. Never a guess.

What could not be asked is ``NOT_CHECKED``, which is something else than fine. Of checks that are
made again and again, a refusal stands until its check has looked at everything it looked at when
it refused, and refuses no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"
    NOT_CHECKED = "not_checked"


_WORST_FIRST: Final = (Level.REFUSED, Level.WARNING, Level.NOT_CHECKED, Level.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a check looked at."""

    check: str = ""
    """Name of the check; public and stable. The registry fills it in."""
    level: Level
    subject: str
    """What was looked at: a queue, an endpoint, a table …"""
    text: str
    """What is true now, lower case."""
    remedy: str = ""
    """What to do about it; empty when there is nothing to do."""


def ok(subject: str, text: str) -> Finding:
    """Return that *subject* is fine."""
    return Finding(level=Level.OK, subject=subject, text=text)


def warning(subject: str, text: str, remedy: str = "") -> Finding:
    """Return what somebody should know of *subject*."""
    return Finding(level=Level.WARNING, subject=subject, text=text, remedy=remedy)


def refused(subject: str, text: str, remedy: str = "") -> Finding:
    """Return why *subject* keeps a run from starting."""
    return Finding(level=Level.REFUSED, subject=subject, text=text, remedy=remedy)


def not_checked(subject: str, text: str) -> Finding:
    """Return why nobody could look at *subject*."""
    return Finding(level=Level.NOT_CHECKED, subject=subject, text=text)


def verdict(findings: Iterable[Finding]) -> Level:
    """Return the worst level among *findings*; ``OK`` when there are none.

    A refusal is worse than a warning, and a warning is worse than something that was not checked.
    """
    levels = {finding.level for finding in findings}
    return next((level for level in _WORST_FIRST if level in levels), Level.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One check that refuses."""

    check: str
    text: str
    """What it found, in a line."""
    remedy: str
    unseen: frozenset[str]
    """Subjects it could not look at when it refused."""


def standing(before: Mapping[str, Refusal], findings: Iterable[Finding]) -> Mapping[str, Refusal]:
    """Return the refusals that stand after *findings*, by check; *before* are those until then."""
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.check].append(finding)
    new = {check: _refusal(check, each) for check, each in found.items() if _refusals(each)}
    kept = {
        check: refusal
        for check, refusal in before.items()
        if check not in new and (check not in found or _unseen(found[check]) - refusal.unseen)
    }
    return dict(sorted({**kept, **new}.items()))


def _refusals(findings: Sequence[Finding]) -> Sequence[Finding]:
    return [each for each in findings if each.level is Level.REFUSED]


def _refusal(check: str, findings: Sequence[Finding]) -> Refusal:
    first, *more = _refusals(findings)
    others = f", and {len(more)} more" if more else ""
    return Refusal(
        check=check,
        text=f"{first.subject}: {first.text}{others}",
        remedy=first.remedy,
        unseen=_unseen(findings),
    )


def _unseen(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(each.subject for each in findings if each.level is Level.NOT_CHECKED)
