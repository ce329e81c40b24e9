"""The JSON documents of what an operator decides after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from migrator.documents import Document, Part
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import Count

_Outcome = Literal["handed-over", "claimed", "quarantined", "written-off"]


class ResolvedBatch(Document, title="migrator/db-resolve/1"):
    """`migrator db resolve BATCH --json`, of a doubtful batch."""

    batch: int
    outcome: _Outcome = Field(alias="as")


class ResolvedRows(ResolvedBatch):
    """`migrator db resolve BATCH --json`."""

    state: str
    source: str
    rows: Count
    evidence: str


class DoubtfulBatch(Part):
    """A batch of which it is not known whether it was handed over."""

    batch: int
    endpoint: str
    lane: Count
    mode: Mode
    attempt: Count
    size: Count
    since: datetime


class HalfDoneBatch(Part):
    """A batch that is half claimed, or half put back."""

    batch: int
    state: str
    endpoint: str
    source: str
    lane: Count
    rows: Count


class ReturningRows(Part):
    """Rows of one batch whose return to the store is recorded but not confirmed."""

    batch: int
    endpoint: str
    source: str
    towards: Literal["released", "recalled"]
    rows: Count


class UnresolvedDocument(Document, title="migrator/db-unresolved/1"):
    """`migrator db resolve --json` without a batch."""

    doubtful: Sequence[DoubtfulBatch]
    half_done: Sequence[HalfDoneBatch]
    going_back: Sequence[ReturningRows]


class CopiedLedger(Document, title="migrator/db-adopt/1"):
    """`migrator db adopt --json` of a copy."""

    ledger: str


class MovedLedger(CopiedLedger):
    """`migrator db adopt --json`, all but `ledger` with `--moved`."""

    created_in: str
    present: str
    is_moved: bool
    batches: dict[str, Count]
    refusals: Sequence[str]
    remarks: Sequence[str]
    is_done: bool


class SameServer(Document, title="migrator/db-adopt-after-failover/1"):
    """`migrator db adopt --after-failover --json` where nothing failed over."""

    has_failed_over: bool
    is_done: bool


class FailedOver(SameServer):
    """`migrator db adopt --after-failover --json`."""

    handed_over_from_store: Count
    handed_over_from_batches: Count
    not_sent: Count
    doubtful: Count
    doubtful_batches: Sequence[int]
    nowhere: Count
