"""Documents as the program writes them, with names that nobody should choose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName
from migrator.preview.report import DispatchedCounts, Preview
from migrator.reports.pages import About
from migrator.reports.plan import Plan, PreviewDocument
from migrator.stores.endpoints import EndpointPreview, Quarantinable
from migrator.verify.document import VerifyDocument, verify_document
from migrator.verify.report import (
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    Found,
    LevelBalance,
    VerifyResult,
)

NOW = datetime(2031, 3, 4, 2, 58, 11, 402356, tzinfo=UTC)
ABOUT = About(version="0.1.0", ledger="fd0b44d9ce25", options="--endpoint Sales")
HOSTILE = (
    "</style><script src=http://evil.example/x.js>alert(1)</script>",
    '"\' onmouseover=alert(1) x="',
    "<img src=//evil.example/p.png>",
    "url(https://evil.example) @import 'x' {{ 7 * 7 }} {% raw %}",
    "`</code><b>` & &lt; \u202egnp.exe \x00\n\ud800",
)


def endpoint(name: str = "Sales", **changes: Any) -> EndpointPreview:
    """Return the preview of an endpoint whose rows are all accounted for."""
    facts: dict[str, Any] = {
        "endpoint": EndpointName(name),
        "source": f"{name}_TimeoutData",
        "stored": 12_345,
        "in_ledger": 1,
        "left": 44,
        "beyond_horizon": 300,
        "to_migrate": 12_000,
        "overdue": 7,
        "quarantine": {
            Reason.NO_DESTINATION: Quarantinable(count=3, examples=["a1", "b2"], detail="nothing")
        },
        "destinations": {QueueName("Billing"): 11_000, QueueName("Shipping"): 997},
        "due": {"overdue": 7, "1m": 37, "1d": 12_001, "8.5y": 300},
        "bytes": 3_500_000,
        "entry_levels": {16: 11_990, 3: 7},
    }
    return EndpointPreview(**{**facts, **changes})


def preview(*endpoints: EndpointPreview, **changes: Any) -> PreviewDocument:
    """Return the document of a preview."""
    found = Preview(
        taken_at=NOW,
        cutoff=timedelta(minutes=1),
        horizon=None,
        version=DelaysVersion.V2,
        rate_per_s=2_000,
        exchange_cost_s=0.0001,
        bursts=(),
        endpoints=endpoints,
        modes={each.endpoint: "migrate" for each in endpoints},
    )
    plan = Plan(preview=found, findings=(), asks_broker=True, purge_after=None)
    document = plan.document.model_copy(update={"waiting": {}, **changes})
    assert isinstance(document, PreviewDocument)
    return document


def dispatched(name: str = "Shipping", **changes: Any) -> DispatchedCounts:
    """Return what a preview tells of an endpoint in mode dispatch."""
    return DispatchedCounts(
        endpoint=name,
        source=f"{name}_TimeoutData",
        stored=812,
        overdue=3,
        in_ledger=0,
        without_due_time=0,
        quarantined=2,
        first_due=None,
        last_due=None,
        sample=None,
        to_send=810,
        destinations={name: 810},
    ).model_copy(update=changes)


def balance(name: str = "Sales", **rows: int) -> EndpointBalance:
    """Return the counts of an endpoint, of which nothing is missing."""
    return EndpointBalance(
        endpoint=EndpointName(name),
        source=f"{name}_TimeoutData",
        in_store=3,
        claimed=sum(rows.values()) + 1,
        purged=1,
        rows=rows,
    )


def verification(**changes: Any) -> VerifyDocument:
    """Return the document of a verification; without *changes* everything agrees."""
    facts: dict[str, Any] = {
        "taken_at": NOW,
        "endpoints": [balance(handed_over=12_000, claimed=20, recalled=4)],
        "destinations": [place("Billing", waiting=7_000, left=5_000)],
        "levels": [
            LevelBalance(
                delays=DelaysVersion.V2, level=n, total=n * 1_000, ours=n * 900, foreign=n * 100
            )
            for n in range(27, -1, -1)
        ],
        "rows_checked": 12_024,
        "waiting": 7_000,
        "discrepancies": (),
        "counts": {Discrepancy.TWICE: 0},
        "doubtful": (),
        "not_checked": (),
    }
    digest = changes.pop("digest", None)
    return verify_document(VerifyResult(**{**facts, **changes}), digest)


def place(name: str | None, *, waiting: int, left: int = 0) -> DestinationBalance:
    """Return a destination of Sales."""
    return DestinationBalance(
        endpoint=EndpointName("Sales"), destination=name, waiting=waiting, left=left, quarantined=0
    )


def found(detail: str = "too few", endpoint: str | None = None) -> Found:
    """Return a discrepancy."""
    return Found(
        kind=Discrepancy.ROWS_GONE,
        endpoint=None if endpoint is None else EndpointName(endpoint),
        timeout_id=endpoint,
        batch=BatchId(7),
        detail=detail,
    )
