"""What checks found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from migrator.cli.output import say, write_table
from migrator.errors import ExitCode
from migrator.preflight.context import Finding, Level, verdict
from migrator.preflight.registry import UNREACHABLE


def write_findings(findings: Sequence[Finding]) -> None:
    """Write *findings* as a table and their verdict as talk."""
    write_table(
        ("check", "level", "subject", "text", "remedy"),
        ((f.check, f.level, f.subject, f.text, f.remedy) for f in findings),
    )
    say(f"verdict: {verdict(findings)}")


def findings_document(findings: Sequence[Finding]) -> dict[str, object]:
    """Return verdict and *findings* as plain values for JSON."""
    return {"verdict": verdict(findings), "findings": [asdict(each) for each in findings]}


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """Return what the process tells its caller about *findings*."""
    refused = {f.check for f in findings if f.level is Level.REFUSED}
    if refused & UNREACHABLE:
        return ExitCode.UNREACHABLE
    return ExitCode.PREFLIGHT_REFUSED if refused else ExitCode.DONE
