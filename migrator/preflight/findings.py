"""What a check found out: fine, worth knowing, refused, or not checked. Never a guess.

What could not be asked is ``NOT_CHECKED``, which is something else than fine.
"""

from __future__ import annotations

from collections.abc import Iterable
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

    check: str
    """Name of the check; public and stable."""
    level: Level
    subject: str
    """What was looked at: a queue, an endpoint, a table …"""
    text: str
    """What is true now, lower case."""
    remedy: str = ""
    """What to do about it; empty when there is nothing to do."""


def verdict(findings: Iterable[Finding]) -> Level:
    """Return the worst level among *findings*; ``OK`` when there are none.

    A refusal is worse than a warning, and a warning is worse than something that was not checked.
    """
    levels = {finding.level for finding in findings}
    return next((level for level in _WORST_FIRST if level in levels), Level.OK)
