"""The JSON document of a verification."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator

from migrator.documents import Document, Part
from migrator.ledger.report import HeldDestination
from migrator.nservicebus.timeouts import Count
from migrator.verify.report import (
    STATES,
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    Found,
    LevelBalance,
    Verdict,
    VerifyResult,
)


class EndpointAccount(Part):
    """Every row ever claimed of one endpoint, by where it is."""

    endpoint: str
    source: str
    in_store: Count | None
    claimed: int
    in_flight: Count
    parked: Count
    handed_over: Count
    dispatched: Count
    quarantined: Count
    released: Count
    recalled: Count
    discarded: Count
    doubtful: Count
    purged: Count
    unaccounted: int


def _account(found: EndpointBalance) -> EndpointAccount:
    return EndpointAccount(
        endpoint=found.endpoint,
        source=found.source,
        in_store=found.in_store,
        claimed=found.claimed,
        in_flight=found.in_flight,
        purged=found.purged,
        unaccounted=found.unaccounted,
        **{name.replace(" ", "_"): found.count(state) for name, state in STATES},
    )


class VerifyDocument(Document, title="migrator/verify/1"):
    """`migrator verify --json`."""

    taken_at: datetime
    endpoints: Annotated[
        Sequence[EndpointAccount], BeforeValidator(lambda found: [*map(_account, found)])
    ]
    destinations: Sequence[DestinationBalance]
    levels: Sequence[LevelBalance]
    rows_checked: Count
    waiting: Count
    discrepancies: Sequence[Found]
    """The first of each kind; ``counts`` has all."""
    counts: Annotated[
        dict[Discrepancy, Count],
        BeforeValidator(lambda found: {kind: n for kind, n in sorted(found.items()) if n}),
    ]
    doubtful: Sequence[int]
    not_checked: Sequence[str]
    unread: Sequence[str]
    """Tables that could not be read; what they have was not compared."""
    parked: Sequence[HeldDestination]
    verdict: Verdict
    is_complete: bool
    evidence_sha256: str | None = None


def verify_document(found: VerifyResult, digest: str | None = None) -> VerifyDocument:
    """Return the document of *found*; *digest* is that of the evidence."""
    return VerifyDocument.model_validate(found).model_copy(update={"evidence_sha256": digest})
