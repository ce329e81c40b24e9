"""What checks that are made again and again say: which refusals stand, and which are over.

Rules of this file: pure; a refusal stands until its check has looked at everything it looked at
when it refused, and refuses no more. What could not be looked at lifts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from migrator.preflight.findings import Finding, Level


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
    refused = {check: _refusal(check, each) for check, each in found.items() if _refused(each)}
    kept = {
        check: refusal
        for check, refusal in before.items()
        if check not in refused and (check not in found or _unseen(found[check]) - refusal.unseen)
    }
    return dict(sorted({**kept, **refused}.items()))


def _refused(findings: Sequence[Finding]) -> Sequence[Finding]:
    return [each for each in findings if each.level is Level.REFUSED]


def _refusal(check: str, findings: Sequence[Finding]) -> Refusal:
    first, *more = _refused(findings)
    others = f", and {len(more)} more" if more else ""
    return Refusal(
        check=check,
        text=f"{first.subject}: {first.text}{others}",
        remedy=first.remedy,
        unseen=_unseen(findings),
    )


def _unseen(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(each.subject for each in findings if each.level is Level.NOT_CHECKED)
