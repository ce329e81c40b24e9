"""A ledger, levels and evidence in memory, for a verification to look at."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pika import spec

from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.routing import DelaysVersion, address, delay_s
from migrator.delays.scan import LevelMessage, ScanEnd, ScanLimits
from migrator.errors import DeliveryLimitNear
from migrator.ledger.report import DoubtfulBatch, HeldDestination
from migrator.ledger.states import BatchState
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import Attempt, build_tag
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName, TimeoutId
from migrator.rabbitmq.properties import Properties
from migrator.verify.levels import VerifyContext, VerifyPlan
from migrator.verify.report import (
    BatchGap,
    DestinationBalance,
    EndpointBalance,
    EvidenceRecord,
    RowKey,
    VerifyResult,
)
from migrator.verify.verify import Verification

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
DAY = timedelta(days=1)
SALES, BILLING = EndpointName("Sales"), EndpointName("Billing")
V1, V2 = DelaysVersion
LEDGER_ID = "a1"
OPEN_STATES = {*BatchState} - {BatchState.RELEASED}


def record(number: int, *, endpoint: EndpointName = SALES, **changes: Any) -> EvidenceRecord:
    """Return a row that was handed over an hour ago and is due in a day."""
    fields: dict[str, Any] = {
        "id": number,
        "batch": BatchId(1),
        "row_index": number,
        "source": f"{endpoint}_TimeoutData",
        "timeout_id": TimeoutId(f"t{number}"),
        "destination": "Shipping",
        "due_at": NOW + DAY,
        "state": "handed_over",
        "reason": None,
        "content_hash": "ab",
        "claimed_at": NOW,
        "handed_over_at": NOW - timedelta(hours=1),
    }
    return EvidenceRecord(endpoint=endpoint, **(fields | changes))


def body_of(row: EvidenceRecord) -> bytes:
    """Return the body that the message of *row* has to have."""
    return f"body of {row.timeout_id}".encode()


def encoded(**properties: Any) -> Properties:
    """Return properties as they come from a broker."""
    return Properties(b"".join(spec.BasicProperties(**properties).encode()))


class FakeScan:
    """Delivers what is in one level, two at a time; has no way to take anything out."""

    def __init__(self, world: World, level: int, delays: DelaysVersion) -> None:
        self.world, self.level, self.end = world, level, ScanEnd.HELD_LONG_ENOUGH
        self._waiting = list(world.of(delays).get(level, []))
        self._is_all = len(self._waiting) <= world.window
        del self._waiting[world.window :]

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        if self.level in self.world.tired:
            raise DeliveryLimitNear("came back too often")
        found = [self._waiting.pop(0) for _ in range(min(at_most, 2, len(self._waiting)))]
        if not found and self._is_all:
            is_shared = self.level in self.world.shared
            self.end = ScanEnd.SHARED if is_shared else ScanEnd.EMPTY
        return [replace(each, seen_at=self.world.now()) for each in found]

    def close(self) -> None:
        self.world.is_holding = False
        self.world.closed[self.level] += 1
        for move in self.world.on_close.pop(self.level, []):
            move()


@dataclass
class World:
    """Everything a verification asks, in one; tests plant what is wrong."""

    table: list[EvidenceRecord] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    """Ids of rows whose content is not what was claimed."""
    levels: dict[int, list[LevelMessage]] = field(default_factory=dict)
    v1: dict[int, list[LevelMessage]] = field(default_factory=dict)
    """Levels of the other generation; it does not exist as long as nothing is in it."""
    sizes: Counter[BatchId] = field(default_factory=Counter)
    unexplained: int = 0
    """Rows that were claimed, though no batch says so."""
    legacy: set[str] = field(default_factory=set)
    doubtful: list[DoubtfulBatch] = field(default_factory=list)
    elapsed: float = 0.0
    waited: list[float] = field(default_factory=list)
    window: int = 1000
    """Messages of a level that can be looked at."""
    tired: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    """Levels that somebody else consumes."""
    held_back: dict[int, int] = field(default_factory=dict)
    held: Sequence[HeldDestination] = ()
    unacknowledged: dict[int, int] = field(default_factory=dict)
    untold: Counter[int] = field(default_factory=Counter)
    """Messages in a level that the management API does not tell yet."""
    missing_levels: set[int] = field(default_factory=set)
    gap: str = ""
    staged: int = 0
    closed: Counter[int] = field(default_factory=Counter)
    on_close: dict[int, list[Callable[[], object]]] = field(default_factory=dict)
    is_holding: bool = False
    on_wait: Callable[[], object] = lambda: None
    asked_pages: list[int] = field(default_factory=list)
    opened: DelaysVersion = V2
    late_rows: list[EvidenceRecord] = field(default_factory=list)
    """Rows whose claim commits only after the pages they belong on were read."""
    ledger_changes: list[Callable[[], object]] = field(default_factory=list)
    """What happens between two questions about sums."""
    lines: dict[int, EvidenceRecord] = field(default_factory=dict)
    """The evidence."""
    amended: list[int] = field(default_factory=list)

    # ── making it ──

    def hand_over(self, due_in: timedelta = DAY, **changes: Any) -> EvidenceRecord:
        """Add a row that was handed over an hour ago, and its message."""
        row = self.add(due_in, **changes)
        self.put(row)
        return row

    def add(
        self, due_in: timedelta = DAY, *, endpoint: EndpointName = SALES, **changes: Any
    ) -> EvidenceRecord:
        """Add a row without a message."""
        number = len(self.table) + 1
        fields: dict[str, Any] = {"endpoint": endpoint, "due_at": NOW + due_in}
        row = record(number, **(fields | changes))
        self.table.append(row)
        self.sizes[row.batch] += 1
        return row

    def put(
        self,
        row: EvidenceRecord,
        *,
        level: int | None = None,
        late_s: int = 0,
        delays: DelaysVersion = V2,
        **changes: Any,
    ) -> None:
        """Put a message of *row* into its level; its headers and its ``app_id`` may be others."""
        wait_s = max(delay_s(row.due_at, now=self.now()) + late_s, 1)
        where = address(delays, wait_s, QueueName("Shipping"))
        message: dict[str, Any] = {
            "tag": 1,
            "is_redelivered": False,
            "raw_key": where.routing_key.encode(),
            "seen_at": NOW,
            "properties": encoded(
                headers=changes.pop("headers", {RELATED_TO_TIMEOUT_ID: row.timeout_id}),
                app_id=changes.pop(
                    "app_id",
                    build_tag(LEDGER_ID, Attempt(batch=row.batch, number=1), row.row_index),
                ),
            ),
            "body_bytes": len(body_of(row)),
            "body_hash": hashlib.sha256(body_of(row)).hexdigest(),
        }
        if (body := changes.pop("body", None)) is not None:
            changes |= {"body_bytes": len(body), "body_hash": hashlib.sha256(body).hexdigest()}
        into = self.of(delays).setdefault(where.level if level is None else level, [])
        into.append(LevelMessage(**(message | changes)))

    def take_out(self, row: EvidenceRecord) -> list[LevelMessage]:
        """Remove every message of *row*."""
        taken = []
        for level, found in self.levels.items():
            mine = [
                m for m in found if m.properties.header(RELATED_TO_TIMEOUT_ID) == row.timeout_id
            ]
            self.levels[level] = [each for each in found if each not in mine]
            taken += mine
        return taken

    def change(self, row: EvidenceRecord, **changes: Any) -> None:
        """Change a row in the ledger, if it is still there."""
        if row in self.table:
            self.table[self.table.index(row)] = row._replace(**changes)

    # ── the clock ──

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.elapsed)

    def monotonic_s(self) -> float:
        return self.elapsed

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.elapsed += seconds
        self.on_wait()

    # ── the levels ──

    def of(self, delays: DelaysVersion) -> dict[int, list[LevelMessage]]:
        """Return the levels of *delays*."""
        return self.levels if delays is V2 else self.v1

    def scan(self, level: int, limits: ScanLimits, _choose: object = None) -> FakeScan:
        self.is_holding = True
        assert level not in self.missing_levels
        return FakeScan(self, level, self.opened)

    def depths(self) -> Sequence[LevelDepths]:
        older = range(28) if self.v1 else ()
        steps = [
            LevelDepth(
                level=level,
                exists=level not in self.missing_levels,
                ready=len(self.levels.get(level, ())) - self.untold.get(level, 0),
                unacknowledged=None if self.gap else self.unacknowledged.get(level, 0),
                held=None if self.gap else self.held_back.get(level, 0),
            )
            for level in range(28)
        ]
        return [
            build_level_depths(
                V1, [LevelDepth(level=n, ready=len(self.v1.get(n, ()))) for n in older]
            ),
            build_level_depths(V2, steps, gap=self.gap),
        ]

    def ready(self, delays: DelaysVersion) -> dict[int, int]:
        found = self.of(delays)
        return {n: len(found.get(n, ())) for n in range(28) if n not in self.missing_levels}

    @contextmanager
    def open(self, delays: DelaysVersion) -> Iterator[World]:
        self.opened = delays
        yield self

    def still_staged(self) -> int:
        return self.staged

    # ── the ledger ──

    def progress(self) -> World:
        """Return what only batches are asked of."""
        return self

    def _of_each(self) -> Iterator[tuple[EndpointName, list[EvidenceRecord]]]:
        if self.ledger_changes:
            self.ledger_changes.pop(0)()
        for name in sorted({row.endpoint for row in self.table}):
            yield name, [row for row in self.table if row.endpoint == name]

    @property
    def unread(self) -> dict[str, str]:
        """Each table can be read."""
        return {}

    def balances(self) -> Sequence[EndpointBalance]:
        return [
            EndpointBalance(
                endpoint=name,
                source=rows[0].source,
                in_store=0,
                claimed=self.unexplained + sum(self.sizes[b] for b in {r.batch for r in rows}),
                purged=0,
                rows=Counter(row.state for row in rows),
            )
            for name, rows in self._of_each()
        ]

    def destinations(self, *, now: datetime) -> Sequence[DestinationBalance]:
        found = []
        for name, rows in self._of_each():
            dues = [row.due_at for row in rows if row.state == "handed_over"]
            waiting = sum(due > now for due in dues)
            found.append(
                DestinationBalance(
                    endpoint=name,
                    destination="Shipping",
                    waiting=waiting,
                    left=len(dues) - waiting,
                    quarantined=0,
                )
            )
        return found

    def gaps(self, of: Collection[EndpointName], *, at_most: int) -> tuple[int, Sequence[BatchGap]]:
        rows = [row for _, found in self._of_each() for row in found]
        there = Counter(row.batch for row in rows)
        endpoints = {row.batch: row.endpoint for row in rows}
        found = [
            BatchGap(
                batch=batch,
                endpoint=endpoints[batch],
                state=BatchState.HANDED_OVER,
                size=size,
                purged=0,
                rows=there[batch],
            )
            for batch, size in sorted(self.sizes.items())
            if there[batch] != size and (not of or endpoints[batch] in of)
        ]
        return len(found), found[:at_most]

    def rows(
        self, *, after: int, at_most: int, endpoints: Collection[EndpointName]
    ) -> Sequence[EvidenceRecord]:
        self.asked_pages.append(at_most)
        return [self.whole(row) for row in self._ascending(self.table, after, at_most)]

    def rows_called(
        self, ids: Collection[int], *, endpoints: Collection[EndpointName]
    ) -> Sequence[EvidenceRecord]:
        return [self.whole(row) for row in [*self.table, *self.late_rows] if row.id in ids]

    def claimed_since(self, since: datetime, *, after: int, at_most: int) -> Sequence[int]:
        rows = [*self.table, *self.late_rows]
        lately = [row for row in rows if row.claimed_at and row.claimed_at >= since]
        return [row.id for row in self._ascending(lately, after, at_most)]

    def _ascending(
        self, rows: Sequence[EvidenceRecord], after: int, at_most: int
    ) -> Sequence[EvidenceRecord]:
        return sorted((r for r in rows if r.id > after), key=lambda row: row.id)[:at_most]

    def whole(self, row: EvidenceRecord) -> EvidenceRecord:
        """Return *row* with what the database finds out by hashing it."""
        body_hash = hashlib.sha256(body_of(row)).hexdigest()
        return row._replace(body_hash=body_hash, is_intact=row.id not in self.damaged)

    def intact(self, ids: Collection[int]) -> Mapping[int, bool]:
        return {row.id: row.id not in self.damaged for row in self.table if row.id in ids}

    def in_both_places(
        self, of: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[EvidenceRecord]]:
        found = [
            row
            for name, rows in self._of_each()
            for row in rows
            if row.timeout_id in self.legacy and row.state in OPEN_STATES and (not of or name in of)
        ]
        return len(found), found[:at_most]

    def known(self, rows: Collection[RowKey]) -> Mapping[RowKey, EvidenceRecord]:
        assert not self.is_holding, "messages of others are held while the ledger is asked"
        return {
            each.row: each._replace(body_hash=hashlib.sha256(body_of(each)).hexdigest())
            for each in self.table
            if each.row in rows
        }

    # ── the evidence ──

    def write(self, lines: Sequence[EvidenceRecord]) -> None:
        assert not self.lines.keys() & {line.id for line in lines}
        self.lines |= {line.id: line for line in lines}

    def amend(self, changes: Mapping[int, EvidenceRecord]) -> None:
        assert changes.keys() <= self.lines.keys()
        self.amended += changes
        self.lines |= changes

    def verdicts(self) -> dict[int, str]:
        """Return the verdict of each line."""
        return {id_: str(line.verdict) for id_, line in sorted(self.lines.items())}

    # ── verifying ──

    def verified(self, *, is_scan: bool = True, **plan: Any) -> VerifyResult:
        """Verify everything."""
        self.lines.clear()
        everything: Any = self
        parts = VerifyContext(
            queries=everything,
            ledger=everything,
            ledger_id=LEDGER_ID,
            access=everything,
            clock=everything,
            wait=self.wait,
            store=everything,
            leases=everything,
            lease_duration=timedelta(minutes=1),
            runs=everything,
            fault=lambda _step: None,
            progress=lambda _what, _done: None,
        )
        return Verification(parts, VerifyPlan(is_scan=is_scan, **plan), everything).run()
