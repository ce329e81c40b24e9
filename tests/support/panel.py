"""A daemon that only remembers: ``web.control.StatusService`` for the tests of the web side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from migrator.delays.depths import LevelDepth, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.ledger.report import (
    AuditEvent,
    DoubtfulBatch,
    EndpointProgress,
    HeldDestination,
    LaneStatus,
    Progress,
    QuarantineCount,
    QuarantinedRow,
    QuarantinedTimeout,
    QuarantineFilter,
)
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane
from migrator.status.document import StatusDocument, status_document
from migrator.status.remaining import Phase, Remaining, SentBy
from migrator.status.snapshot import EndpointView, JobReport, JobView, Snapshot
from migrator.throttle.reasons import PauseReason, Signal
from migrator.web.control import (
    Adjust,
    Answer,
    Command,
    Liveness,
    Pause,
    QuarantinePage,
    Readiness,
    Resume,
    Retry,
    StatusService,
)

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
SALES = EndpointName("Sales")
NASTY = EndpointName('Odd "name"\\\n{x="1"} größer')
"""An endpoint's name is a text somebody chose."""


def hold(signal: Signal, endpoint: EndpointName | None = None, *, minute: int = 0) -> PauseReason:
    """Return a hold that began some minutes after ``NOW``."""
    return PauseReason(
        signal=signal,
        endpoint=endpoint,
        observed="what was seen",
        limit="",
        since=NOW + timedelta(minutes=minute),
    )


def some_progress() -> Progress:
    """Return a ledger with something of everything in it."""
    lane = LaneStatus(
        lane=Lane(0),
        owner="app1",
        doing="staging",
        until=NOW,
        renewed_at=NOW - timedelta(seconds=4),
        is_alive=True,
        open_batches=2,
    )
    return Progress(
        taken_at=NOW,
        endpoints=[
            EndpointProgress(
                endpoint=SALES,
                rows={"claimed": 4, "handed_over": 90, "dispatched": 7, "doubtful": 10},
            )
        ],
        quarantine=[QuarantineCount(endpoint=SALES, reason="no-destination", rows=3)],
        doubtful=[
            DoubtfulBatch(
                batch=BatchId(7),
                endpoint=SALES,
                lane=Lane(0),
                mode=Mode.STAGED,
                attempt=2,
                size=10,
                since=NOW,
            )
        ],
        oldest_open_age=timedelta(minutes=5),
        lanes=[lane],
        held=[
            HeldDestination(
                endpoint=SALES,
                source="public.Sales_TimeoutData",
                destination="Billing",
                reason="destination-unknown",
                detail="no queue",
                tries=3,
                since=NOW,
                next_try_at=NOW,
                rows=40,
            )
        ],
    )


def some_remaining(to_move: int = 5000, *, left: int = 0, overdue: int = 0) -> Remaining:
    """Return what is in a store, with a cutoff of a minute and without a timeout manager."""
    return Remaining(
        counted_at=NOW,
        in_store=to_move + left,
        is_exact=True,
        to_move=to_move,
        left=left,
        overdue=overdue,
        later=0,
        cutoff=timedelta(minutes=1),
        due=[("overdue", overdue), ("up to 1h", to_move + left - overdue)],
        sent_by=SentBy.NOBODY if left else None,
        queue="Sales.TimeoutsDispatcher",
    )


def some_snapshot(*, holds: Sequence[PauseReason] = ()) -> Snapshot:
    """Return a look at a daemon with something of everything in it."""
    return Snapshot(
        taken_at=NOW,
        age_s=1.5,
        version="1.2.3",
        owner="app1/1/2/3",
        progress=some_progress(),
        endpoints=[
            EndpointView(
                endpoint=SALES,
                mode="migrate",
                phase=Phase.MOVING,
                remaining=some_remaining(),
                rate_per_s=50.0,
                holds=holds,
            ),
            EndpointView(
                endpoint=NASTY,
                mode="dispatch",
                phase=None,
                remaining=None,
                rate_per_s=None,
                holds=(),
            ),
        ],
        holds=holds,
        settings={"batch_size": "1000", "cutoff": "1m", "rate_limit": "0", "mode": "staged"},
        levels=build_level_depths(
            DelaysVersion.V2,
            [LevelDepth(level=3, ready=12, unacknowledged=0, held=40, consumers=0)],
        ),
        due=[("up to 1h", 11), ("later", 22)],
        events=[
            AuditEvent(
                id=1,
                at=NOW,
                kind="command",
                batch=None,
                endpoint=SALES,
                actor="alice",
                detail={"at": NOW},
            )
        ],
        jobs=[
            JobView(job="sweep", when="1s", runs=90, missed=2),
            JobView(
                job="probe",
                when="1m",
                runs=1,
                missed=0,
                last=JobReport(
                    at=NOW, outcome="late", is_fine=False, text="levels late, early or lost: 3"
                ),
            ),
        ],
        gaps=["the management API did not answer"],
    )


class MemoryPanel:
    """Remembers what it was told, and shows what the test wants shown."""

    def __init__(self) -> None:
        self.shown = some_snapshot()
        self.liveness = Liveness(silent_s={"lane-worker-0": 0.5}, is_alive=True)
        self.readiness = Readiness(is_ready=True, reasons=())
        self.told: list[tuple[Command, str]] = []
        self.answers = threading.Event()
        """Cleared: commands get no answer until it is set."""
        self.answers.set()
        self.bug: Exception | None = None
        self.aside: list[QuarantinedRow] = []
        self.trouble = ""
        self.ledger_place = "here"

    def snapshot(self) -> Snapshot:
        if self.bug is not None:
            raise self.bug
        return self.shown

    def live(self) -> Liveness:
        return self.liveness

    def ready(self) -> Readiness:
        return self.readiness

    def ledger(self) -> StatusDocument | None:
        if self.trouble:
            return None
        shown = self.shown
        return status_document(some_progress(), shown.endpoints, shown.holds, told_by="daemon")

    def quarantine(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        rows = [
            row
            for row in self.aside
            if row.key > after
            and which.endpoint in (None, row.endpoint)
            and which.reason in (None, row.reason)
        ]
        return QuarantinePage(rows=rows[:limit], has_more=len(rows) > limit, error=self.trouble)

    def quarantined(self, which: QuarantineFilter) -> Sequence[QuarantinedTimeout]:
        return [
            QuarantinedTimeout(
                row=row,
                saga_id=None,
                headers_text='{"NServiceBus.MessageId": "<b>1</b>"}',
                body=b"<Body>\xff",
                persistence_version=None,
                content_hash="",
            )
            for row in self.aside
            if (row.timeout_id, which.endpoint) == (which.timeout_id, row.endpoint)
        ]

    def execute(self, command: Command, *, who: str) -> Answer:
        self.told.append((command, who))
        self.answers.wait(30)
        match command:
            case Pause(endpoint=endpoint, reason=reason):
                return Answer(is_done=True, text=f"paused {endpoint or 'everything'}: {reason}")
            case Resume():
                return Answer(is_done=True, text="nothing is paused")
            case Adjust(setting=setting, value=value):
                return Answer(is_done=value.isdigit(), text=f"{setting} is {value}")
            case Retry():
                return Answer(is_done=True, text="3 rows of the quarantine tried again")
            case _:
                return Answer(is_done=True, text="draining")


_: type[StatusService] = MemoryPanel
