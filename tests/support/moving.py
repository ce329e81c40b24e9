"""A daemon whose numbers move, as a ``StatusService``: for those who look at pages in a browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from migrator.config import HandOver
from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.errors import ConfigError
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import (
    AuditEvent,
    EndpointProgress,
    LaneStatus,
    Progress,
    QuarantineCount,
    QuarantinedRow,
    QuarantineFilter,
)
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, TimeoutId
from migrator.service.runtime_settings import RuntimeSettings
from migrator.web.control import (
    Adjust,
    Answer,
    Command,
    Drain,
    Pause,
    Resume,
    Retry,
    StatusService,
    StopNow,
)
from migrator.web.status import EndpointView, Liveness, QuarantinePage, Readiness, Snapshot

BEGAN = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
SALES = EndpointName("Sales.Orders")
BILLING = EndpointName("Billing")
SHIPPING = EndpointName("Acme.Warehouse.Shipping.Notifications.ScheduledDispatch")
LONG_DETAIL = "no queue of that name; migrator delays verify tells what leads where"
_TOTAL = {SALES: 1_250_000, BILLING: 84_000}
_DONE = {SALES: 412_000, BILLING: 83_400}
_RATE_PER_S = {SALES: 4_700, BILLING: 120}
_ASIDE = {
    (SALES, Reason.DESTINATION_UNKNOWN): 57,
    (SALES, Reason.HEADERS_TOO_LARGE): 2,
    (BILLING, Reason.DESTINATION_UNBOUND): 3,
}


class MovingPanel:
    """Hands over as long as nobody pauses it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._began_s = time.monotonic()
        self._seen_s = self._began_s
        self._done = dict(_DONE)
        self._holds: dict[EndpointName | None, PauseReason] = {}
        self._events = [
            self._event(2, "hold ended", None, {"signal": "broker_alarm", "after_s": 41}),
            self._event(1, "run_begun", SALES, {"version": "1.2.3", "mode": "staged"}),
        ]
        self._aside = list(_rows())
        self._runtime = RuntimeSettings(HandOver(lanes=2))
        self.told: list[tuple[Command, str]] = []

    def snapshot(self) -> Snapshot:
        with self._turn:
            self._move()
            return Snapshot(
                taken_at=self._now(),
                age_s=0.4,
                version="1.2.3",
                owner="app-07 (pid 4711)",
                progress=self._progress(),
                endpoints=[self._view(SALES), self._view(BILLING), _dispatched()],
                holds=list(self._holds.values()),
                knobs={**self._runtime.texts(), "mode": "staged"},
                ladder=self._ladder(),
                due=[
                    ("overdue", 1_204),
                    ("up to 1m", 312),
                    ("up to 1h", 8_450),
                    ("up to 1d", 131_000),
                    ("up to 7d", 402_500),
                    ("up to 30d", 260_000),
                    ("up to 365d", 34_100),
                    ("later", 1_034),
                ],
                events=list(self._events),
                jobs=(),
                gaps=(),
            )

    def live(self) -> Liveness:
        return Liveness(silent_s={"lane-worker-0": 0.2}, is_alive=True)

    def ready(self) -> Readiness:
        return Readiness(is_ready=True, reasons=())

    def quarantine(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        rows = [
            row
            for row in self._aside
            if row.key > after
            and which.endpoint in (None, row.endpoint)
            and which.reason in (None, row.reason)
        ]
        return QuarantinePage(rows=rows[:limit], has_more=len(rows) > limit)

    def execute(self, command: Command, *, who: str) -> Answer:
        with self._turn:
            self._move()
            self.told.append((command, who))
            answer = self._answer(command, who)
            detail = {
                "command": type(command).__name__.lower(),
                "who": who,
                "answer": answer.text,
            }
            number = len(self._events) + 1
            self._events.insert(0, self._event(number, "command", None, detail))
            return answer

    def _answer(self, command: Command, who: str) -> Answer:
        match command:
            case Pause(endpoint=endpoint, reason=reason):
                self._holds[endpoint] = PauseReason(
                    signal=Signal.PAUSED,
                    endpoint=endpoint,
                    observed=f"{reason} ({who})",
                    limit="",
                    since=self._now(),
                )
                whom = endpoint or "hand-over of every endpoint"
                return Answer(is_done=True, text=f"{whom} is paused; what is claimed is finished")
            case Resume(endpoint=endpoint):
                if endpoint is None:
                    self._holds.clear()
                self._holds.pop(endpoint, None)
                return Answer(is_done=True, text=f"{endpoint or 'hand-over'} is resumed")
            case Adjust(knob=knob, value=value):
                try:
                    self._runtime.set(knob, value)
                except ConfigError as exc:
                    return Answer(is_done=False, text=str(exc))
                return Answer(is_done=True, text=f"{knob} is {self._runtime.texts()[knob]}")
            case Drain() | StopNow():
                return Answer(is_done=True, text="finishing what is claimed, then ending")
            case Retry(timeout_id=timeout_id):
                before = len(self._aside)
                self._aside = [
                    row for row in self._aside if timeout_id not in (None, row.timeout_id)
                ]
                count = before - len(self._aside)
                return Answer(is_done=True, text=f"{count} rows of the quarantine tried again")

    def _move(self) -> None:
        now_s = time.monotonic()
        for name, rate in _RATE_PER_S.items():
            if not self._held(name):
                done = self._done[name] + int(rate * (now_s - self._seen_s))
                self._done[name] = min(_TOTAL[name] - _aside_of(name), done)
        self._seen_s = now_s

    def _now(self) -> datetime:
        return BEGAN + timedelta(seconds=time.monotonic() - self._began_s)

    def _held(self, name: EndpointName) -> Sequence[PauseReason]:
        return [hold for key, hold in self._holds.items() if key in (None, name)]

    def _view(self, name: EndpointName) -> EndpointView:
        left = _TOTAL[name] - self._done[name] - _aside_of(name)
        rate = 0 if self._held(name) else _RATE_PER_S[name]
        return EndpointView(
            name=name,
            mode="migrate",
            in_store=left,
            rate_per_s=rate,
            eta_s=left / rate if rate else None,
            holds=self._held(name),
        )

    def _progress(self) -> Progress:
        rows = {
            name: {"handed_over": done, "quarantined": _aside_of(name)}
            for name, done in self._done.items()
        }
        if not self._held(SALES):
            rows[SALES]["staging"] = 2_000
        now = self._now()
        return Progress(
            taken_at=now,
            endpoints=[
                *(EndpointProgress(endpoint=name, rows=counts) for name, counts in rows.items()),
                EndpointProgress(endpoint=SHIPPING, rows={"dispatched": 18_220}),
            ],
            quarantine=[
                QuarantineCount(endpoint=name, reason=reason, rows=count)
                for (name, reason), count in _ASIDE.items()
            ],
            doubtful=(),
            oldest_open_age=timedelta(seconds=1),
            lanes=[
                LaneStatus(
                    lane=Lane(number),
                    owner="app-07 (pid 4711)",
                    doing=doing if not self._holds else "held: paused",
                    until=now + timedelta(seconds=20),
                    renewed_at=now,
                    is_alive=True,
                    open_batches=open_batches,
                )
                for number, (doing, open_batches) in enumerate([("staging", 2), ("committing", 1)])
            ],
        )

    def _ladder(self) -> LevelDepths:
        done = sum(self._done.values())
        weights = {24: 3, 23: 9, 22: 20, 21: 30, 20: 21, 19: 12, 18: 8, 17: 5, 16: 3, 12: 1}
        ready = {level: done * weight // 112 for level, weight in weights.items()}
        return build_level_depths(
            DelaysVersion.V2,
            [
                LevelDepth(
                    level=level,
                    ready=ready.get(level, level % 3),
                    unacknowledged=0,
                    held=12 if level == 3 else 0,
                    consumers=0,
                )
                for level in range(28)
            ],
        )

    def _event(
        self, number: int, kind: str, endpoint: EndpointName | None, detail: Mapping[str, object]
    ) -> AuditEvent:
        return AuditEvent(
            id=number,
            at=self._now(),
            kind=kind,
            batch=None,
            endpoint=endpoint,
            actor="app-07",
            detail=detail,
        )


def _dispatched() -> EndpointView:
    return EndpointView(
        name=SHIPPING, mode="dispatch", in_store=5_311, rate_per_s=2.5, eta_s=None, holds=()
    )


def _aside_of(name: EndpointName) -> int:
    return sum(count for (endpoint, _), count in _ASIDE.items() if endpoint == name)


def _rows() -> Sequence[QuarantinedRow]:
    rows: list[QuarantinedRow] = []
    for (name, reason), count in _ASIDE.items():
        for _ in range(count):
            key = len(rows) + 1
            rows.append(
                QuarantinedRow(
                    key=key,
                    endpoint=name,
                    source=f"public.{name}_TimeoutData",
                    timeout_id=TimeoutId(f"7d0c1b52-9e4f-4a3b-1234-{key:012x}"),
                    batch=BatchId(7),
                    destination="Acme.Payments.Reminders" if key % 4 else None,
                    due_at=BEGAN + timedelta(hours=7 * key),
                    body_bytes=321 * key,
                    reason=reason,
                    detail=LONG_DETAIL if reason == Reason.DESTINATION_UNKNOWN else "",
                )
            )
    return rows


_: type[StatusService] = MovingPanel
