"""A ledger, levels and evidence in memory, for a verification to look at."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from migrator.delays.access import LevelAccess
from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.routing import DelaysVersion, address, delay_s
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.errors import DeliveryLimitNear
from migrator.ledger.queries import SqlBooks
from migrator.ledger.report import DoubtfulBatch
from migrator.ledger.states import BatchState
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import Attempt, build_tag
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName, TimeoutId
from migrator.verify.evidence import EvidenceFile
from migrator.verify.levels import Parts, VerifyPlan
from migrator.verify.queries import Verifications
from migrator.verify.report import (
    BatchGap,
    DestinationBalance,
    EndpointBalance,
    EvidenceRecord,
    Verification,
)
from migrator.verify.rules import KnownTimeout, LevelSighting
from migrator.verify.verify import Verifier

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
DAY = timedelta(days=1)
SALES, BILLING = EndpointName("Sales"), EndpointName("Billing")
LEDGER_ID = "a1"
OPEN_STATES = {*BatchState} - {BatchState.RELEASED, BatchState.RECALLED}


def body_of(row: EvidenceRecord) -> bytes:
    """Return the body that the message of *row* has to have."""
    return f"body of {row.timeout_id}".encode()


@dataclass
class FakeScan:
    """Delivers what is in one level; takes nothing out."""

    world: World
    level: int
    delays: DelaysVersion = DelaysVersion.V2
    end: ScanEnd | None = None
    _given: int = 0

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        waiting = self.world.of(self.delays).get(self.level, [])
        if self.level in self.world.tired:
            raise DeliveryLimitNear("came back too often")
        if self._given >= self.world.window or self._given == len(waiting):
            is_all = self._given == len(waiting)
            self.end = ScanEnd.EMPTY if is_all else ScanEnd.HELD_LONG_ENOUGH
            if is_all and self.level in self.world.shared:
                self.end = ScanEnd.SHARED
            return ()
        found = waiting[self._given : self._given + min(at_most, 2)]
        self._given += len(found)
        return [replace(each, seen_at=self.world.now()) for each in found]

    def acknowledge(self, tags: Iterable[int]) -> None:
        raise AssertionError("a verification takes nothing out")

    def close(self) -> None:
        self.world.is_holding = False
        self.world.closed[self.level] += 1
        for move in self.world.on_close.pop(self.level, []):
            move()


@dataclass
class World:
    """Everything a verification asks; tests plant what is wrong."""

    rows: list[EvidenceRecord] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    """Ids of rows whose content is not what was claimed."""
    hashed: list[int] = field(default_factory=list)
    """Ids of rows, as they were hashed."""
    levels: dict[int, list[LevelMessage]] = field(default_factory=dict)
    v1: dict[int, list[LevelMessage]] | None = None
    """Levels of the other generation; None: it does not exist."""
    sizes: Counter[BatchId] = field(default_factory=Counter)
    legacy: set[str] = field(default_factory=set)
    doubtful: list[DoubtfulBatch] = field(default_factory=list)
    elapsed: float = 0.0
    waited: list[float] = field(default_factory=list)
    window: int = 1000
    """Messages of a level that can be looked at."""
    tired: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    """Levels that somebody else consumes."""
    held: dict[int, int] = field(default_factory=dict)
    unacknowledged: dict[int, int] = field(default_factory=dict)
    missing_levels: set[int] = field(default_factory=set)
    gap: str = ""
    staged: int | None = 0
    closed: Counter[int] = field(default_factory=Counter)
    on_close: dict[int, list[Callable[[], object]]] = field(default_factory=dict)
    is_holding: bool = False
    slowness: float = 0.0
    """Seconds that the ledger needs to say what it knows."""
    signs_of_life: int = 0
    on_wait: Callable[[], None] = lambda: None
    asked_pages: list[int] = field(default_factory=list)
    opened: DelaysVersion = DelaysVersion.V2
    late_rows: list[EvidenceRecord] = field(default_factory=list)
    """Rows whose claim commits only after the pages they belong on were read."""
    ledger_changes: list[Callable[[], None]] = field(default_factory=list)
    """What happens between two questions about sums."""

    # ── making it ──

    def hand_over(
        self, due_in: timedelta = DAY, *, endpoint: EndpointName = SALES, **changes: Any
    ) -> EvidenceRecord:
        """Add a row that was handed over an hour ago, and its message."""
        row = self.add(due_in, endpoint=endpoint, **changes)
        self.put(row)
        return row

    def add(
        self, due_in: timedelta = DAY, *, endpoint: EndpointName = SALES, **changes: Any
    ) -> EvidenceRecord:
        """Add a row without a message."""
        number = len(self.rows) + 1
        fields: dict[str, Any] = {
            "id": number,
            "batch": BatchId(1),
            "row_index": number,
            "endpoint": endpoint,
            "source": f"{endpoint}_TimeoutData",
            "timeout_id": TimeoutId(f"t{number}"),
            "destination": "Shipping",
            "due_at": NOW + due_in,
            "state": "handed_over",
            "reason": None,
            "content_hash": "ab",
            "handed_over_at": NOW - timedelta(hours=1),
        }
        row = EvidenceRecord(**(fields | changes))
        self.rows.append(row)
        self.sizes[row.batch] += 1
        return row

    def put(
        self,
        row: EvidenceRecord,
        *,
        level: int | None = None,
        body: bytes | None = None,
        late_s: int = 0,
        mark: str | None = None,
        delays: DelaysVersion = DelaysVersion.V2,
    ) -> None:
        """Put a message of *row* into its level."""
        attempt = Attempt(batch=row.batch, number=1)
        if mark is None:
            mark = build_tag(LEDGER_ID, attempt, row.row_index)
        wait_s = max(delay_s(row.due_at, now=self.now()) + late_s, 1)
        where = address(delays, wait_s, QueueName("Shipping"))
        self.of(delays).setdefault(where.level if level is None else level, []).append(
            LevelMessage(
                tag=1,
                routing_key=where.routing_key,
                seen_at=NOW,
                headers={RELATED_TO_TIMEOUT_ID: row.timeout_id},
                message_id="m",
                app_id=mark,
                raw_properties=b"",
                body=body_of(row) if body is None else body,
            )
        )

    def put_foreign(self, headers: Mapping[str, object] | None = None) -> None:
        """Put a message of somebody else into a level."""
        self.levels.setdefault(16, []).append(
            LevelMessage(
                tag=1,
                routing_key="what?",
                seen_at=NOW,
                headers=headers or {},
                message_id="m",
                raw_properties=b"",
                body=b"",
            )
        )

    def take_out(self, row: EvidenceRecord) -> list[LevelMessage]:
        """Remove every message of *row*."""
        taken = []
        for level, found in self.levels.items():
            mine = [m for m in found if m.headers.get(RELATED_TO_TIMEOUT_ID) == row.timeout_id]
            self.levels[level] = [each for each in found if each not in mine]
            taken += mine
        return taken

    def change(self, row: EvidenceRecord, **changes: Any) -> EvidenceRecord:
        """Change a row in the ledger."""
        if not changes.pop("is_intact", True):
            self.damaged.add(row.id)
        changed = replace(row, **changes)
        self.rows[self.rows.index(row)] = changed
        return changed

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
        """Return the levels of *delays*; the other generation comes into being."""
        if delays is DelaysVersion.V2:
            return self.levels
        if self.v1 is None:
            self.v1 = {}
        return self.v1

    def scan(self, level: int, limits: ScanLimits) -> FakeScan:
        self.is_holding = True
        assert level not in self.missing_levels
        return FakeScan(self, level, self.opened)

    def ready(self) -> Mapping[int, int]:
        self.signs_of_life += 1
        return {level: len(found) for level, found in self.levels.items()}

    def depths(self) -> Sequence[LevelDepths]:
        older = {} if self.v1 is None else {level: self.v1.get(level, []) for level in range(28)}
        steps = [
            LevelDepth(
                level=level,
                exists=level not in self.missing_levels,
                ready=len(self.levels.get(level, ())),
                unacknowledged=None if self.gap else self.unacknowledged.get(level, 0),
                held=None if self.gap else self.held.get(level, 0),
            )
            for level in range(28)
        ]
        return [
            build_level_depths(
                DelaysVersion.V1,
                [LevelDepth(level=n, ready=len(found)) for n, found in older.items()],
            ),
            build_level_depths(DelaysVersion.V2, steps, gap=self.gap),
        ]

    @contextmanager
    def open(self, delays: DelaysVersion) -> Iterator[World]:
        self.opened = delays
        yield self

    def still_staged(self) -> int | None:
        return self.staged

    # ── the books ──

    def progress(self) -> World:
        """Return what only batches are asked of."""
        return self

    def _change(self) -> None:
        if self.ledger_changes:
            self.ledger_changes.pop(0)()

    def balances(self) -> Sequence[EndpointBalance]:
        self._change()
        found = []
        for name in sorted({row.endpoint for row in self.rows}):
            rows = [row for row in self.rows if row.endpoint == name]
            sizes = sum(self.sizes[batch] for batch in {row.batch for row in rows})
            found.append(
                EndpointBalance(
                    endpoint=name,
                    source=rows[0].source,
                    in_store=0,
                    claimed=sizes,
                    purged=0,
                    rows=Counter(row.state for row in rows),
                )
            )
        return found

    def destinations(self, *, now: datetime) -> Sequence[DestinationBalance]:
        self._change()
        found = []
        for name in sorted({row.endpoint for row in self.rows}):
            mine = [r for r in self.rows if r.endpoint == name and r.state == "handed_over"]
            waiting = sum(row.due_at > now for row in mine)
            found.append(
                DestinationBalance(
                    endpoint=name,
                    destination="Shipping",
                    waiting=waiting,
                    left=len(mine) - waiting,
                    quarantined=0,
                )
            )
        return found

    def gaps(self, of: Collection[EndpointName], *, at_most: int) -> tuple[int, Sequence[BatchGap]]:
        self._change()
        there = Counter(row.batch for row in self.rows)
        endpoints = {row.batch: row.endpoint for row in self.rows}
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

    def read_rows(
        self, *, after: int, at_most: int, claimed_since: datetime | None = None
    ) -> Sequence[EvidenceRecord]:
        if claimed_since is None:
            self.asked_pages.append(at_most)
            found = [row for row in self.rows if row.id > after]
        else:
            assert claimed_since < self.now()
            found = [row for row in [*self.rows, *self.late_rows] if row.id > after]
        return sorted(found, key=lambda row: row.id)[:at_most]

    def intact(self, ids: Collection[int]) -> Mapping[int, bool]:
        self.hashed += ids
        there = {row.id for row in [*self.rows, *self.late_rows]}
        return {id_: id_ not in self.damaged for id_ in ids if id_ in there}

    def in_both_places(
        self, of: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[EvidenceRecord]]:
        self._change()
        found = [
            r
            for r in self.rows
            if r.timeout_id in self.legacy
            and r.state in OPEN_STATES
            and (not of or r.endpoint in of)
        ]
        return len(found), found[:at_most]

    def known(self, sightings: Collection[LevelSighting]) -> Mapping[LevelSighting, KnownTimeout]:
        assert not self.is_holding, "messages of others are held while the ledger is asked"
        self.elapsed += self.slowness
        found = {}
        for sighting in sightings:
            mark = sighting.row
            for row in self.rows:
                if (row.batch, row.row_index) != (mark.batch, mark.row_index):
                    continue
                same = hashlib.sha256(body_of(row)).hexdigest()
                found[sighting] = KnownTimeout(
                    id=row.id,
                    timeout_id=row.timeout_id,
                    batch=row.batch,
                    endpoint=row.endpoint,
                    due_at=row.due_at,
                    state=row.state,
                    is_same_body=same == sighting.body_hash,
                )
        return found

    # ── verifying ──

    def parts(self, evidence: MemoryEvidence | None = None) -> Parts:
        """Return what a verification asks."""
        return Parts(
            books=cast("Verifications", Books(self)),
            ledger=cast("SqlBooks", self),
            ledger_id=LEDGER_ID,
            access=cast("LevelAccess", self),
            clock=self,
            wait=self.wait,
            evidence=cast("EvidenceFile | None", evidence),
        )

    def verified(self, *, evidence: MemoryEvidence | None = None, **plan: Any) -> Verification:
        """Verify everything."""
        given = {"is_scan": True} | plan
        return Verifier(self.parts(evidence), VerifyPlan(**given)).run()


class Books:
    """The world's ledger, as a verification asks it."""

    def __init__(self, world: World) -> None:
        self.balances = world.balances
        self.destinations = world.destinations
        self.gaps = world.gaps
        self.in_both_places = world.in_both_places
        self.known = world.known
        self.rows = world.read_rows
        self.intact = world.intact


@dataclass
class MemoryEvidence:
    """Evidence that stays in memory."""

    lines: dict[int, EvidenceRecord] = field(default_factory=dict)
    amended: list[int] = field(default_factory=list)

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


_levels: type[Levels] = World
_scan: type[LevelScan] = FakeScan
