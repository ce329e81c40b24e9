"""The JSON document of a rollback."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from annotated_types import Ge

from migrator.documents import Document, Part
from migrator.nservicebus.timeouts import Count


class ExpectedMessages(Part):
    """What the ledger expects of messages that were handed over."""

    in_levels: Count
    too_near: Count
    left: Count
    possible_until: datetime | None
    is_exact: bool


class FoundMessages(Part):
    """The outcome of messages that were found in the levels."""

    restored: Count
    leftover: Count
    too_near: Count
    out_of_scope: Count
    unsettled: Count
    taken: Count
    refused: Count
    store_gone: Count
    different: Count
    foreign: Count


class ExpectedRecall(Part):
    """A recall that has not read the levels."""

    expected: ExpectedMessages


class DoneRecall(ExpectedRecall):
    """A recall that has read the levels."""

    found: FoundMessages
    not_found: Count
    unfinished_levels: Sequence[Count]


class BusyLane(Part):
    """A lane that a process owns."""

    lane: Count
    owner: str


class RollbackDocument(Document, title="migrator/rollback/1"):
    """`migrator rollback --json`."""

    dry_run: bool
    rows: Count
    batches: Sequence[int]
    quarantined: Count
    untouched: Sequence[int]
    republished: Sequence[int]
    republished_due: Count
    stuck: Sequence[int]
    kept: dict[str, Annotated[int, Ge(1)]]
    taken: Count
    left_in_quarantine: str | None
    doubtful: Sequence[int]
    left_staged: Count
    busy: Sequence[BusyLane]
    handed_over: DoneRecall | ExpectedRecall | None
    stopped_by: str | None
