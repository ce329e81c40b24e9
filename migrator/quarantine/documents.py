"""The JSON documents of rows in quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from migrator.documents import Document, Part
from migrator.nservicebus.timeouts import Count


class QuarantinedRow(Part):
    """A row in quarantine, without its content."""

    endpoint: str
    source: str
    batch: int
    destination: str | None
    due_at: datetime
    body_bytes: Count
    reason: str
    detail: str
    id: str


class QuarantinedTimeout(QuarantinedRow):
    """A row in quarantine with everything the store had."""

    saga_id: str | None
    headers_text: str | None
    persistence_version: str | None
    content_hash: str
    body_base64: str | None


class ListDocument(Document, title="migrator/quarantine/1"):
    """`migrator quarantine list --json`."""

    rows: Sequence[QuarantinedRow]


class ShowDocument(Document, title="migrator/quarantined-timeout/1"):
    """`migrator quarantine show --json`."""

    rows: Sequence[QuarantinedTimeout]


class RetryDocument(Document, title="migrator/quarantine-retry/1"):
    """`migrator quarantine retry --json`."""

    rows: Count


class DiscardDocument(Document, title="migrator/quarantine-discard/1"):
    """`migrator quarantine discard --json`."""

    rows: Count
