"""Tests of ``migrator.preflight.findings``."""

from __future__ import annotations

import pytest

from migrator.preflight.findings import Finding, Level, standing, verdict


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([], Level.OK),
        ([Level.OK], Level.OK),
        ([Level.OK, Level.NOT_CHECKED], Level.NOT_CHECKED),
        ([Level.NOT_CHECKED, Level.WARNING, Level.OK], Level.WARNING),
        ([Level.WARNING, Level.REFUSED, Level.NOT_CHECKED], Level.REFUSED),
    ],
)
def test_the_worst_finding_is_the_verdict(levels: list[Level], expected: Level) -> None:
    """What was not checked is never fine, and never hides something worse."""
    findings = [Finding(check="c", level=level, subject="s", text="t") for level in levels]
    assert verdict(findings) is expected


def finding(check: str, level: Level, subject: str = "x") -> Finding:
    """Return a finding with a text and a remedy of its own."""
    return Finding(
        check=check, level=level, subject=subject, text=f"{level} text", remedy=f"mend {subject}"
    )


FINE = finding("policies", Level.OK)
BAD = finding("policies", Level.REFUSED, "policy all")
BLIND = finding("policies", Level.NOT_CHECKED, "policies")


@pytest.mark.parametrize(
    ("rounds", "stands"),
    [
        ([[]], False),
        ([[FINE]], False),
        ([[BLIND]], False),
        ([[finding("policies", Level.WARNING)]], False),
        ([[BAD]], True),
        ([[BAD], [FINE]], False),
        ([[BAD], [BLIND]], True),
        ([[BAD], []], True),
        ([[BAD], [BLIND], [FINE]], False),
        ([[BAD], [FINE, BLIND]], True),
        # what could not be seen when it refused is not needed to see that it is over
        ([[BAD, BLIND], [FINE, BLIND]], False),
        ([[BAD, BLIND], [finding("policies", Level.NOT_CHECKED, "all")]], True),
    ],
)
def test_what_could_not_be_looked_at_lifts_nothing(
    rounds: list[list[Finding]], stands: bool
) -> None:
    """Nor does it hold anything."""
    refusals = standing({}, [])
    for findings in rounds:
        refusals = standing(refusals, findings)
    assert list(refusals) == (["policies"] if stands else [])


def test_a_refusal_has_its_first_finding_and_the_number_of_the_others() -> None:
    """Each check stands for itself; the latest text counts."""
    other = finding("delay-entities", Level.REFUSED, "level 3")
    before = standing({}, [BAD, other])
    found = standing(before, [BAD, finding("policies", Level.REFUSED, "policy b")])
    assert list(found) == ["delay-entities", "policies"]
    assert found["delay-entities"] == before["delay-entities"]
    assert found["policies"].text == "policy all: refused text, and 1 more"
    assert found["policies"].remedy == "mend policy all"
