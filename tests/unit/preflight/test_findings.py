"""Tests of ``migrator.preflight.findings``."""

from __future__ import annotations

import pytest

from migrator.preflight.findings import Finding, Level, verdict


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
