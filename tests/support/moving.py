"""A daemon whose numbers move, as a ``StatusService``: for those who look at pages in a browser."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta

from migrator.config import HandOver
from migrator.delays.depths import LevelDepth, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.errors import ConfigError
from migrator.ledger.report import EndpointProgress, QuarantineCount, QuarantinedRow
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.service.runtime_settings import RuntimeSettings
from migrator.status.remaining import Phase
from migrator.status.snapshot import EndpointView, Snapshot
from migrator.throttle.reasons import PauseReason, Signal
from migrator.web.control import (
    Adjust,
    Answer,
    Command,
    Discard,
    Drain,
    Pause,
    Resume,
    Retry,
    StopNow,
)
from tests.support.panel import NOW, MemoryPanel, some_remaining, some_snapshot

SALES = EndpointName("Sales.Orders")
BILLING = EndpointName("Billing")
_LONG = EndpointName("Acme.Warehouse.Shipping.Notifications.ScheduledDispatch")
_TOTAL = 1_250_000
_RATE_PER_S = {SALES: 4_700, BILLING: 120, _LONG: 0}
_QUARANTINED = {SALES: 59, BILLING: 3, _LONG: 0}

_REASONS = {SALES: Reason.DESTINATION_UNKNOWN, BILLING: Reason.DESTINATION_UNBOUND}
_COUNTS = [
    QuarantineCount(endpoint=name, reason=reason, rows=_QUARANTINED[name])
    for name, reason in _REASONS.items()
]


_EVENTS: list[tuple[str, dict[str, object]]] = [
    (
        "command",
        {
            "command": "resume",
            "who": "alice, status page from 127.0.0.1",
            "answer": "Sales.Orders is resumed",
        },
    ),
    ("hold_ended", {"signal": "broker_alarm", "observed": "memory alarm on rabbit@mq-01"}),
    ("hold_began", {"signal": "broker_alarm", "observed": "memory alarm on rabbit@mq-01"}),
    ("quarantine_discarded", {"rows": 12, "reason": "body-missing"}),
]


class MovingPanel(MemoryPanel):
    """Hands over as long as nobody pauses it."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.Lock()
        self._began_s = self._seen_s = time.monotonic()
        self._done = {SALES: 412_000, BILLING: 83_400, _LONG: 18_220}
        self._holds: dict[EndpointName | None, PauseReason] = {}
        self._runtime = RuntimeSettings(HandOver(lanes=2))
        aside = [name for name, count in _QUARANTINED.items() for _ in range(count)]
        self.aside = [_row(name, key) for key, name in enumerate(aside)]

    def snapshot(self) -> Snapshot:
        with self._turn:
            self._move()
            shown = some_snapshot(holds=list(self._holds.values()))
            taken_at = NOW + timedelta(seconds=self._seen_s - self._began_s)
            progress = [
                EndpointProgress(
                    endpoint=name, rows={"handed_over": n, "quarantined": _QUARANTINED[name]}
                )
                for name, n in self._done.items()
            ]
            levels = [
                LevelDepth(
                    level=n,
                    ready=1000 * n * (n > 11),
                    unacknowledged=0,
                    held=n % 3 * (n > 11),
                    consumers=0,
                )
                for n in range(28)
            ]
            return replace(
                shown,
                taken_at=taken_at,
                progress=replace(
                    shown.progress, taken_at=taken_at, endpoints=progress, quarantine=_COUNTS
                ),
                endpoints=[self._view(name) for name in self._done],
                settings={**self._runtime.texts(), "mode": "staged"},
                levels=build_level_depths(DelaysVersion.V2, levels),
                jobs=(),
                gaps=(),
                events=[
                    replace(
                        shown.events[0],
                        kind=kind,
                        detail={"endpoint": SALES, **detail},
                    )
                    for kind, detail in _EVENTS
                ],
                title="Acme orders, production",
                system={
                    "database": "orders at db-07",
                    "broker": "mq-01:5672, virtual host orders",
                    "ledger": "b31f0c9a",
                },
                uptime_s=8_000.0,
                throughput=[None] * 12 + [4_000 + 900 * (n % 7) - 60 * n for n in range(48)],
            )

    def execute(self, command: Command, *, who: str) -> Answer:
        with self._turn:
            self._move()
            self.told.append((command, who))
            return self._answer(command, who)

    def _answer(self, command: Command, who: str) -> Answer:
        match command:
            case Pause(endpoint=endpoint, reason=reason):
                self._holds[endpoint] = PauseReason(
                    signal=Signal.PAUSED,
                    endpoint=endpoint,
                    observed=f"{reason} ({who})",
                    limit="",
                    since=NOW,
                )
                whom = endpoint or "hand-over of every endpoint"
                return Answer(is_done=True, text=f"{whom} is paused; what is claimed is finished")
            case Resume(endpoint=endpoint):
                self._holds.pop(endpoint, None)
                return Answer(is_done=True, text=f"{endpoint or 'hand-over'} is resumed")
            case Adjust(setting=setting, value=value):
                try:
                    self._runtime.set(setting, value)
                except ConfigError as exc:
                    return Answer(is_done=False, text=str(exc))
                return Answer(is_done=True, text=f"{setting} is {self._runtime.texts()[setting]}")
            case Drain() | StopNow():
                return Answer(is_done=True, text="finishing what is claimed, then ending")
            case Retry() | Discard():
                return Answer(is_done=True, text="3 rows of the quarantine tried again")

    def _move(self) -> None:
        now_s = time.monotonic()
        for name, rate in _RATE_PER_S.items():
            if not self._is_held(name):
                self._done[name] += int(rate * (now_s - self._seen_s))
        self._seen_s = now_s

    def _is_held(self, name: EndpointName) -> bool:
        return not self._holds.keys().isdisjoint({None, name})

    def _view(self, name: EndpointName) -> EndpointView:
        left, rate = _TOTAL - self._done[name], 0 if self._is_held(name) else _RATE_PER_S[name]
        return EndpointView(
            endpoint=name,
            mode="migrate",
            phase=Phase.WAITING if self._is_held(name) else Phase.MOVING,
            remaining=some_remaining(left),
            rate_per_s=rate,
            holds=[hold for key, hold in self._holds.items() if key in (None, name)],
        )


def _row(name: EndpointName, key: int) -> QuarantinedRow:
    return QuarantinedRow(
        key=key + 1,
        endpoint=name,
        source=f"public.{name}_TimeoutData",
        timeout_id=TimeoutId(f"7d0c1b52-9e4f-4a3b-1234-{key:012x}"),
        batch=BatchId(7),
        destination="Acme.Payments.Reminders" if key % 4 else None,
        due_at=NOW + timedelta(hours=7 * key),
        body_bytes=321 * key,
        reason=_REASONS[name],
        detail="no queue of that name; migrator delays show says what leads where",
    )
