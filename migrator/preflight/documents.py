"""The JSON document of what checks find about the delay levels."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.delays.documents import DelayLevels
from migrator.documents import Document
from migrator.preflight.context import Finding, Level


class FindingsDocument(Document, title="migrator/delays-show/1"):
    """`migrator delays show --json`, where the broker cannot be asked."""

    verdict: Level
    findings: Sequence[Finding]


class DelaysDocument(FindingsDocument, DelayLevels):
    """`migrator delays show --json`; without a broker, its findings alone."""
