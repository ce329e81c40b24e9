"""Lanes over a faithful memory broker: killed and cut at every step, nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.delays.releases import EXCHANGE_COST_S, FRACTION, load
from migrator.delays.routing import Unreachable
from migrator.errors import (
    ClockInDoubt,
    HandOverDoubtful,
    ReceiptMissing,
    SourceGone,
    StoreUnavailable,
    TargetUnavailable,
)
from migrator.handover.claiming import ClaimableCache, Claimer
from migrator.handover.direct import DirectHandOver
from migrator.handover.holding import Holding
from migrator.handover.lane import LanePacing, LaneSession, LaneSetup
from migrator.handover.pacing import Pacer
from migrator.handover.ports import Delayed
from migrator.handover.prepare import Preparer
from migrator.handover.staged import StagedHandOver
from migrator.ledger.states import BatchState, Mode
from migrator.ledger.work import Batch, Lease
from migrator.nservicebus.conversion import BrokerLimits, Reason
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import QueueName, StoredTimeout
from migrator.rabbitmq.messages import PublishResult
from migrator.stores.endpoints import Selection
from migrator.throttle.guard import QuarantineLimit
from tests.unit.handover.memory import (
    ENDPOINT,
    LEASE,
    RUN,
    START,
    AtOnce,
    Killed,
    MemoryBroker,
    MemoryClock,
    MemoryDestinations,
    MemoryLedger,
    MemoryLink,
    MemoryStaging,
    timeout,
)

FAULTS = {
    Mode.STAGED: (
        "staged.begun",
        "staged.publishing",
        "staged.confirmed",
        "staged.committing",
        "staged.nacked",
        "staged.receipt",
        "staged.handed_over",
    ),
    Mode.DIRECT: ("direct.begun", "direct.publishing", "direct.confirmed", "direct.handed_over"),
}
BATCH = 5
CLAIMED = BatchState.CLAIMED


class World:
    """A store full of timeouts, a broker, and processes that come and go."""

    def __init__(
        self, *, rows: int = 23, seed: int = 1, overdue: int = 0, batch: int = BATCH
    ) -> None:
        self.batch = batch
        self.clock = MemoryClock()
        self.ledger = MemoryLedger(
            [timeout(n, -5.0 if n < overdue else 3600.0 + n) for n in range(rows)]
        )
        self.ids = list(self.ledger.stored)
        self.broker = MemoryBroker(self.clock, random.Random(seed))
        self.destinations = MemoryDestinations()
        self.link: MemoryLink | None = None
        self.unroutable: frozenset[str] = frozenset()
        self.full: frozenset[str] = frozenset()
        self.pacer = Pacer()
        self.counted = 0
        """Rows that were told to be handed over."""

    def process(
        self, mode: Mode, fault: Callable[[str], None] = lambda _name: None
    ) -> tuple[LaneSession, MemoryLink, LaneSetup]:
        """Start a process: everything but ledger and broker is new."""
        self.holding = Holding(
            ledger=self.ledger.held,
            parking=self.ledger.parking,
            look_for=self.destinations.unreachable,
            forget=lambda _names: None,
            clock=self.clock,
            renamed={},
        )
        self.holding.begin([ENDPOINT])
        parts = LaneSetup(
            batches=self.ledger,
            clock=self.clock,
            claimer=Claimer(
                claims=self.ledger,  # type: ignore[arg-type]  # only what is asked
                clock=self.clock,
                selection=lambda: Selection(cutoff=timedelta(0), horizon=None),
                endpoints=[(ENDPOINT, RUN)],
                mode=mode,
                max_bytes=1 << 20,
                claimable=ClaimableCache(self.ledger, self.clock),  # type: ignore[arg-type]  # as above
                pacer=self.pacer,
                holding=self.holding,
            ),
            preparer=Preparer(
                batches=self.ledger,
                destinations=self.destinations,
                holding=self.holding,
                clock=self.clock,
                rules=BrokerLimits(),
                own_queue_of=QueueName,
            ),
            direct=DirectHandOver(
                batches=self.ledger,
                holding=self.holding,
                clock=self.clock,
                fault=fault,
            ),
            claiming=AtOnce(),
            preparing=AtOnce(),
            pace=lambda: LanePacing(batch_rows=self.batch),
            pacer=self.pacer,
            quarantine_limit=QuarantineLimit(0, ()),
            receipt_deadline_s=60.0,
            fault=fault,
            handed_over=self._count,
        )
        return *self.session(parts), parts

    def parked(self) -> list[StoredTimeout]:
        """Return the rows that wait for their destination."""
        return [row for rows in self.ledger.parked.values() for row in rows]

    def session(
        self,
        parts: LaneSetup,
        guard: Callable[[], None] = lambda: None,
        *,
        may_claim: bool = True,
    ) -> tuple[LaneSession, MemoryLink]:
        """Open a new link for a process that goes on living."""
        link = self.link = MemoryLink(self.broker, self.unroutable, self.full)

        session = LaneSession(
            parts,
            lease=LEASE,
            link=link,
            guard=guard,
            may_claim=lambda: may_claim,
        )
        return session, link

    def _count(self, _batch: Batch, rows: int, _seconds: float) -> None:
        self.counted += rows

    def die(self) -> None:
        """The kernel closes a dead process's sockets."""
        assert self.link is not None
        self.link.close()

    def run_to_the_end(self, mode: Mode, turns: int = 500) -> None:
        """One process that works until nothing is left, opening a new link after each cut."""
        session, link, parts = self.process(mode)
        for _ in range(turns):
            try:
                work(session)
            except TargetUnavailable:
                session.close()
                link.close()
                session, link = self.session(parts)
            else:
                return
        pytest.fail("no end in sight")

    def lost(self) -> list[str]:
        kept = {*self.ledger.stored, *(row.id for row in self.parked())}
        return [i for i in self.ids if not self.broker.delivered[i] and i not in kept]

    def doubled(self) -> list[str]:
        return [i for i in self.ids if self.broker.delivered[i] > 1]


def work(session: LaneSession) -> None:
    """Do what a lane does, until nothing is left."""
    session.recover()
    while session.turn(may_claim=True):
        pass


def kill_at(name: str, hit: int) -> Callable[[str], None]:
    """Return a fault point that kills the process at the n-th *name*."""
    hits = 0

    def fault(reached: str) -> None:
        nonlocal hits
        hits += reached == name
        if reached == name and hits == hit:
            raise Killed(name)

    return fault


def killed(name: str, *, rows: int = 23, hit: int = 1) -> World:
    """Return a world whose first process was killed when it was at *name* for the n-th time."""
    world = World(rows=rows)
    mode = next(mode for mode, names in FAULTS.items() if name in names)
    session, _, _ = world.process(mode, kill_at(name, hit))
    with pytest.raises(Killed):
        work(session)
    world.die()
    return world


@pytest.mark.parametrize("mode", FAULTS)
def test_every_row_arrives_once_when_nothing_goes_wrong(mode: Mode) -> None:
    """The plain path hands each row over exactly once and leaves no open batch."""
    world = World(overdue=7)
    world.run_to_the_end(mode)
    assert set(world.broker.delivered.values()) == {1}
    assert len(world.broker.delivered) == 23
    assert {b.state for b in world.ledger.batches.values()} == {BatchState.HANDED_OVER}


@pytest.mark.parametrize("hit", [1, 2, 4])
@pytest.mark.parametrize(("mode", "name"), [(m, n) for m, names in FAULTS.items() for n in names])
@pytest.mark.parametrize("next_mode", FAULTS)
def test_a_kill_at_each_step_is_recovered_by_a_plain_restart(
    mode: Mode, name: str, hit: int, next_mode: Mode
) -> None:
    """Staged never doubles, direct at most the batch in flight, and neither loses."""
    world = killed(name, hit=hit)
    world.run_to_the_end(next_mode)
    assert world.clock.elapsed < 10  # no proof was waited for that had already come
    assert world.lost() == []
    assert len(world.doubled()) <= (0 if mode is Mode.STAGED else BATCH)
    assert {b.state for b in world.ledger.batches.values()} == {BatchState.HANDED_OVER}


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (StoreUnavailable("no answer"), BatchState.CLAIMING),
        (SourceGone("no such table"), BatchState.CLAIMING),
        (BatchState.RELEASED, BatchState.RELEASED),
        (BatchState.CLAIMED, BatchState.HANDED_OVER),
    ],
)
def test_what_is_claimed_does_not_wait_for_a_store_that_is_away(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | BatchState, left: BatchState
) -> None:
    """An older claim is half-done; only that one needs the store."""
    world = World(rows=10)
    session, _, parts = world.process(Mode.STAGED)
    half, whole = (parts.claimer.claim(LEASE, max_rows=BATCH) for _ in range(2))
    assert half is not None
    assert whole is not None
    world.ledger.batches[half.id] = replace(half, state=BatchState.CLAIMING)

    def resume(batch: Batch, _lease: Lease) -> Batch | None:
        assert batch.id == half.id
        state = world.ledger.batches[whole.id].state
        assert state in (BatchState.COMMITTING, BatchState.HANDED_OVER)
        if isinstance(answer, Exception):
            raise answer
        world.ledger.batches[half.id] = found = replace(half, state=answer)
        return found if answer is BatchState.CLAIMED else None

    monkeypatch.setattr(world.ledger, "resume", resume)
    session.recover()
    assert (session.unfinished is not None) == isinstance(answer, StoreUnavailable)
    assert (session.stuck is not None) == isinstance(answer, SourceGone)
    assert world.ledger.batches[half.id].state is left


@given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from([*FAULTS]),
    rate=st.floats(0.0, 0.05),
    splits=st.floats(0.0, 0.2),
    kills=st.lists(
        st.tuples(
            st.sampled_from([n for names in FAULTS.values() for n in names]), st.integers(1, 4)
        ),
        max_size=4,
    ),
)
@settings(max_examples=300, deadline=None)
def test_kills_cuts_and_splits_in_any_order_lose_nothing(
    seed: int, mode: Mode, rate: float, splits: float, kills: list[tuple[str, int]]
) -> None:
    """Whatever dies when: lost is 0, and staged doubles nothing that was still to come."""
    world = World(seed=seed)
    world.broker.failure_rate, world.broker.split_rate = rate, splits
    for name, hit in kills:
        session, _, _ = world.process(mode, kill_at(name, hit))
        with contextlib.suppress(Killed, TargetUnavailable):
            work(session)
        world.die()
    world.run_to_the_end(mode)
    assert world.lost() == []
    if mode is Mode.STAGED:
        assert world.doubled() == []


def test_rows_that_the_broker_keeps_refusing_are_tried_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Status says so, lines of the log grow rarer; all go as soon as it takes any."""
    world = World(rows=5)
    session, link, _ = world.process(Mode.DIRECT)
    pauses: list[float] = []
    shown: list[str] = []

    def idle(wait_s: float) -> None:
        world.broker.clock.elapsed += wait_s
        pauses.append(wait_s)
        shown.append(session.activity)
        world.broker.failure_rate = float(len(pauses) < 20)

    world.broker.failure_rate = 1.0
    link.publish = partial(_refusing, link)  # type: ignore[method-assign]
    link.idle = idle  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "migrator"):
        for _ in range(4):  # over a new link now and then
            with contextlib.suppress(TargetUnavailable):
                work(session)
    assert world.lost() == []
    assert world.doubled() == []
    assert pauses[:7] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert shown[0].startswith("publishing: the broker refuses 5 rows of batch 1;")
    lines = [each for each in caplog.records if vars(each).get("action") == "rows_refused"]
    assert [vars(each)["times"] for each in lines] == [1, 2, 4, 8, 16]


def _refusing(
    link: MemoryLink,
    _pass: Attempt,
    chunks: Iterable[Sequence[Delayed]],
    settled: PublishResult,
    **_silence: float,
) -> Collection[int]:
    for message, delay_s in chain.from_iterable(chunks):
        if not link.broker.cut():
            link.broker.arrive(message, delay_s)
            settled.confirmed.add(message.row_index)
    return ()


def test_nothing_arrives_early_however_slow_an_attempt_is() -> None:
    """An attempt too old is staged again with fresh delays until it fits its growing limit."""
    world = World(rows=5)
    world.broker.seconds_per_pass = 3.0
    world.run_to_the_end(Mode.STAGED)
    due = {row.id: row.due_at for rows in world.ledger.batch_rows.values() for row in rows}
    assert set(world.broker.delivered.values()) == {1}
    assert all(world.broker.earliest[i] >= due[i] for i in due)
    assert world.ledger.batches[1].attempt > 2  # type: ignore[index]


def test_attempts_shrink_while_the_way_to_the_levels_is_slow_and_grow_again() -> None:
    """Late is what passes between a row's publish and its level; fewer rows take less of it."""
    world = World(rows=14_000, batch=1000)
    world.broker.hop_s_per_row = 0.003
    world.pacer = Pacer(is_on=lambda: False)  # which would make them smaller, too
    session, _, _ = world.process(Mode.STAGED)
    session.recover()

    def sizes() -> list[int]:
        return [batch.size for batch in world.ledger.batches.values()]

    while len(sizes()) < 14:
        assert session.turn(may_claim=True)
    assert sizes()[:4] == [1000] * 4  # claimed before the first receipt
    assert all(100 < size <= 500 for size in sizes()[6:])
    world.broker.hop_s_per_row = 0.0
    while session.turn(may_claim=True):
        pass
    assert max(sizes()[14:]) == 1000
    assert world.doubled() == world.lost() == []


@pytest.mark.parametrize("may_claim", [True, False])
@pytest.mark.parametrize("is_interrupted", [False, True], ids=["living", "taken up"])
def test_overdue_rows_do_not_wait_for_receipts(*, is_interrupted: bool, may_claim: bool) -> None:
    """While the broker stands still they go by another way; unless nothing may be claimed."""
    world = World(rows=2 * BATCH if is_interrupted else 4 * BATCH)
    world.broker.hop_s_per_row = 8.0
    session, _, parts = world.process(Mode.STAGED)
    overdue = timeout(9999, 20.0)
    told: list[str] = []

    def guard() -> None:
        if world.clock.elapsed > 20:
            if not told:
                world.ledger.stored[overdue.id] = overdue
            told.append(session.activity)

    if is_interrupted:
        assert session.turn(may_claim=True)
        world.die()
    session, _ = world.session(parts, guard, may_claim=may_claim)
    if is_interrupted:
        session.recover()
    else:
        for _ in range(3):
            assert session.turn(may_claim=True)
    sent_at = world.broker.earliest.get(overdue.id)
    if may_claim:
        assert sent_at is not None
        assert sent_at - overdue.due_at < timedelta(seconds=3)
        assert world.broker.delivered[overdue.id] == 1
    else:
        assert sent_at is None
    assert "no receipt for batch 1 for" in told[-1]


GONE = {"Gone": Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail="no such queue")}


def half_lost(due_in_s: float = 3600.0) -> World:
    """Return a world of 20 rows, half of them for a destination that cannot be reached."""
    world = World(rows=0)
    for n in range(20):
        row = timeout(n, due_in_s + n, destination="Gone" if n % 2 else "Billing")
        world.ledger.stored[row.id] = row
        world.ids.append(row.id)
    return world


@pytest.mark.parametrize("mode", FAULTS)
@pytest.mark.parametrize("due_in_s", [3600.0, -60.0], ids=["to come", "overdue"])
def test_rows_for_a_lost_destination_are_parked(mode: Mode, due_in_s: float) -> None:
    """The others go on; once it can be reached, they do, too, and nobody has to do anything."""
    world = half_lost(due_in_s)
    world.destinations.lost = dict(GONE)
    world.run_to_the_end(mode)
    assert {name: len(rows) for name, rows in world.ledger.parked.items()} == {"Gone": 10}
    assert (world.ledger.stored, len(world.broker.delivered)) == ({}, 10)
    assert list(world.ledger.held.now) == ["Gone"]
    assert not world.ledger.quarantined
    world.run_to_the_end(mode)  # what the ledger knows, nobody claims first
    assert sum(batch.size for batch in world.ledger.batches.values()) == 10
    world.destinations.lost = {}
    world.run_to_the_end(mode)
    assert (world.lost(), world.doubled(), world.ledger.held.now) == ([], [], {})


def test_a_lost_destination_is_looked_at_again_within_seconds() -> None:
    """First after 5 s, never less often than every 15 s; then its rows go on."""
    world = half_lost()
    world.destinations.lost = dict(GONE)
    world.run_to_the_end(Mode.STAGED)
    for _ in range(5):
        world.clock.elapsed += 15
        assert not world.holding.check_some()
    world.destinations.lost = {}
    assert not world.holding.check_some()  # it is not its time
    world.clock.elapsed += 15
    assert world.holding.check_some()
    assert not world.ledger.held.now


def test_a_destination_that_vanishes_holds_what_is_claimed_already() -> None:
    """Killed between the claim and the look, the next process parks the same rows."""
    world = half_lost()
    session, _, _ = world.process(Mode.STAGED, kill_at("staged.begun", 1))
    with pytest.raises(Killed):
        work(session)
    world.die()
    world.destinations.lost = dict(GONE)
    world.run_to_the_end(Mode.STAGED)
    assert (len(world.ledger.parked["Gone"]), len(world.broker.delivered)) == (10, 10)
    assert world.lost() == []


def test_overdue_rows_that_come_back_hold_their_destination_until_one_arrives() -> None:
    """An exchange may be there and lead nowhere: one row tries it, less and less often."""
    world = half_lost(-60.0)
    world.unroutable = frozenset({"Gone"})
    world.run_to_the_end(Mode.DIRECT)
    assert (len(world.parked()), len(world.broker.delivered), world.counted) == (10, 10, 10)
    batches = len(world.ledger.batches)
    world.clock.elapsed += 5
    world.run_to_the_end(Mode.DIRECT)
    (held,) = world.ledger.held.now.values()
    assert (held.reason, held.tries, len(world.parked())) == (Reason.UNROUTABLE, 2, 10)
    assert len(world.ledger.batches) == batches + 1
    world.unroutable = frozenset()
    world.clock.elapsed += 10
    world.run_to_the_end(Mode.DIRECT)
    assert (world.lost(), world.doubled(), world.ledger.held.now) == ([], [], {})


def test_overdue_rows_that_their_queue_refuses_wait_for_it_alone() -> None:
    """The third refusal within 0.2 s parks it; with room again, each of its rows arrives once."""
    world = half_lost(-60.0)
    world.full = frozenset({"Gone"})
    world.run_to_the_end(Mode.DIRECT)
    assert (len(world.parked()), len(world.broker.delivered), world.counted) == (10, 10, 10)
    (held,) = world.ledger.held.now.values()
    assert (held.reason, held.tries) == (Reason.REFUSED, 1)
    assert world.clock.elapsed < 4 * 0.21
    world.full = frozenset()
    world.clock.elapsed += 5
    world.run_to_the_end(Mode.DIRECT)
    assert (world.lost(), world.doubled(), world.ledger.held.now) == ([], [], {})


def test_a_destination_that_answers_nothing_gets_one_row_and_no_second_copy() -> None:
    """The others are handed over; once the row is answered, the destination's rest follows."""
    world = half_lost(-60.0)
    world.broker.silent = frozenset({"Gone"})
    session, link, _ = world.process(Mode.DIRECT)
    work(session)
    (held,) = world.ledger.held.now.values()
    assert (held.reason, len(link.unanswered), world.counted) == (Reason.NO_ANSWER, 1, 10)
    assert len(world.parked()) == 10
    world.clock.elapsed += 6
    world.holding.check_some()
    work(session)
    assert (len(link.unanswered), world.counted) == (1, 10)
    world.broker.silent = frozenset()
    link.answer()
    assert session.idle(1.0)
    work(session)
    assert (world.lost(), world.doubled(), world.ledger.held.now) == ([], [], {})
    assert (world.counted, len(world.parked()), bool(world.holding.late)) == (20, 0, False)


def test_a_row_without_an_answer_is_sent_again_over_the_next_link_alone() -> None:
    """Nothing can be known of it any more; whether it comes twice is the broker's to say."""
    world = half_lost(-60.0)
    world.broker.silent = frozenset({"Gone"})
    session, link, parts = world.process(Mode.DIRECT)
    work(session)
    link.close()
    world.broker.silent = frozenset()
    world.clock.elapsed += 6
    world.holding.check_some()
    session, _ = world.session(parts)
    work(session)
    assert (world.lost(), len(world.doubled()), world.ledger.held.now) == ([], 1, {})


def test_a_row_is_parked_by_where_its_headers_send_it() -> None:
    """No column says so."""
    world = World(rows=0)
    headers = '{"NServiceBus.Timeout.RouteExpiredTimeoutTo": "Gone"}'
    row = replace(timeout(1, 3600.0), destination=None, headers_text=headers)
    world.ledger.stored[row.id] = row
    world.destinations.lost = dict(GONE)
    world.run_to_the_end(Mode.STAGED)
    assert (world.ledger.stored, len(world.parked())) == ({}, 1)
    assert not world.ledger.quarantined


def test_a_receipt_the_ledger_cannot_explain_stops_before_the_next_commit() -> None:
    """A ledger that fell behind (a restored or failed-over database) doubles nothing."""
    world = killed("staged.receipt")
    batch = next(b for b in world.ledger.batches.values() if b.state is BatchState.COMMITTING)
    world.ledger.batches[batch.id] = replace(batch, state=BatchState.STAGING)
    session, _, _ = world.process(Mode.STAGED)
    with pytest.raises(HandOverDoubtful):
        work(session)
    assert world.doubled() == []


@pytest.mark.parametrize("is_doubtful", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_commit_that_comes_back_whole_is_sent_again(*, is_doubtful: bool, is_first: bool) -> None:
    """All redelivered is proof, early or late, before or behind waste of an older attempt."""
    world = killed("staged.committing", rows=BATCH)
    (batch,) = world.ledger.batches.values()
    waste = Attempt(batch=batch.id, number=batch.attempt - 1)
    world.broker.staging.insert(0 if is_first else len(world.broker.staging), (waste, 0, "waste"))
    if is_doubtful:
        world.ledger.batches[batch.id] = replace(batch, state=BatchState.DOUBTFUL)
        for n in range(BATCH):
            row = timeout(100 + n, 7200.0 + n)
            world.ledger.stored[row.id] = row
            world.ids.append(row.id)
        world.run_to_the_end(Mode.STAGED)  # the new rows go, and the old ones are found
    world.run_to_the_end(Mode.STAGED)
    assert (world.lost(), world.doubled()) == ([], [])


def test_the_rows_of_a_doubtful_batch_are_counted_when_its_receipt_comes_at_last() -> None:
    """Whether this process or an earlier one gave it up, what it tells is true."""
    world = killed("staged.nacked", rows=BATCH)
    world.broker.receipts, late = [], world.broker.receipts
    session, _, _ = world.process(Mode.STAGED)
    session.recover()
    (batch,) = world.ledger.batches.values()
    assert (batch.state, world.counted) == (BatchState.DOUBTFUL, 0)
    world.broker.receipts = late
    work(session)
    (batch,) = world.ledger.batches.values()
    assert (batch.state, world.counted) == (BatchState.HANDED_OVER, BATCH)


def test_a_receipt_without_a_way_is_bound_again_before_it_is_doubtful(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever rebuilt a level took its binding along; the lane puts it back and goes on."""
    world = World()
    world.broker.is_routed = False
    world.run_to_the_end(Mode.STAGED)
    assert {b.state for b in world.ledger.batches.values()} == {BatchState.HANDED_OVER}
    assert 10 <= world.clock.elapsed < 15
    (told,) = [each for each in caplog.records if getattr(each, "action", "") == "receipt_late"]
    assert "no receipt for batch 1 for 10 s, waiting up to 60 s" in told.waits_for  # type: ignore[attr-defined]


def test_after_a_receipt_that_does_not_come_others_go_on_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its batch is doubtful, and settles itself once the receipt is there after all."""
    world = World(rows=4 * BATCH)
    world.broker.is_routed = False
    monkeypatch.setattr(MemoryStaging, "bind_again", lambda _self: None)
    session, link, parts = world.process(Mode.STAGED)
    with pytest.raises(ReceiptMissing):
        work(session)
    assert states(world) == {BatchState.DOUBTFUL: 1, BatchState.COMMITTING: 1, CLAIMED: 2}
    link.close()
    link = world.link = MemoryLink(world.broker)
    session = LaneSession(parts, lease=LEASE, link=link, max_commits=1)
    with pytest.raises(ReceiptMissing):
        work(session)
    assert states(world) == {BatchState.DOUBTFUL: 3, CLAIMED: 1}
    link.close()
    world.broker.is_routed = True
    work(LaneSession(parts, lease=LEASE, link=MemoryLink(world.broker), max_commits=1))
    assert states(world) == {BatchState.HANDED_OVER: 4}
    assert world.doubled() == []


def test_what_is_half_done_keeps_nothing_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store does not answer: all else goes on, and it is tried again."""
    world, answers = World(rows=3 * BATCH), list[Batch]()
    session, _, parts = world.process(Mode.STAGED)
    half = parts.claimer.claim(LEASE, max_rows=BATCH)
    assert half is not None
    world.ledger.batches[half.id] = replace(half, state=BatchState.CLAIMING, fresh=None)

    def resume(batch: Batch, _lease: Lease) -> Batch:
        if not answers:
            raise StoreUnavailable("no answer")
        world.ledger.batches[batch.id] = replace(batch, state=CLAIMED)
        return world.ledger.batches[batch.id]

    monkeypatch.setattr(world.ledger, "resume", resume)
    work(session)
    assert states(world) == {BatchState.HANDED_OVER: 2, BatchState.CLAIMING: 1}
    assert isinstance(session.unfinished, StoreUnavailable)
    answers.append(half)
    session.pick_up()
    assert states(world)[BatchState.CLAIMING] == 1  # not yet
    world.clock.elapsed += 11
    session.pick_up()
    while session.turn(may_claim=True):
        pass
    assert states(world) == {BatchState.HANDED_OVER: 3}
    assert (session.unfinished or None) is None


def states(world: World) -> Counter[BatchState]:
    """Return how many batches are in which state."""
    return Counter(batch.state for batch in world.ledger.batches.values())


def test_no_wait_ends_because_the_clock_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held destinations are looked at later; a late receipt is awaited, and bound again."""
    world = half_lost()
    world.destinations.lost = dict(GONE)
    world.run_to_the_end(Mode.STAGED)
    world.ledger.stored = {row.id: row for row in [timeout(n, 3600.0) for n in range(BATCH)]}
    world.broker.is_routed = False
    session, _, _ = world.process(Mode.STAGED)
    assert session.turn(may_claim=True)

    def in_doubt() -> datetime:
        raise ClockInDoubt("it jumped", earliest=START)

    monkeypatch.setattr(world.clock, "now", in_doubt)
    assert not world.holding.check_some()
    while session.turn(may_claim=False):
        pass
    assert {b.state for b in world.ledger.batches.values()} == {BatchState.HANDED_OVER}


def test_a_commit_that_comes_back_needs_not_wait_for_an_earlier_one() -> None:
    """Its return is proof enough while another one's receipt is still awaited."""
    world = World(rows=2 * BATCH)
    _, _, parts = world.process(Mode.STAGED)
    for _ in range(2):
        assert parts.claimer.claim(LEASE, max_rows=BATCH)
    for batch in world.ledger.batches.values():
        world.ledger.batches[batch.id] = replace(batch, state=BatchState.COMMITTING, attempt=1)
    awaited, back = world.ledger.batches.values()
    world.broker.staging = [(back.current_attempt, row, "") for row in (*range(BATCH), None)]
    seen: list[BatchState] = []

    def guard() -> None:
        if world.clock.elapsed > 5:
            seen.append(world.ledger.batches[back.id].state)
            world.broker.receipts.append(awaited.current_attempt)

    staged = StagedHandOver(
        batches=world.ledger,
        clock=world.clock,
        staging=MemoryLink(world.broker).staging(),
        lease=LEASE,
        receipt_deadline_s=60.0,
        fault=lambda _name: None,
        guard=guard,
    )
    assert staged.resolve(awaited, frozenset(range(BATCH))).state is BatchState.HANDED_OVER
    assert seen[0] is BatchState.CLAIMED
    assert world.broker.delivered == {}


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Executor, threading.Event]]:
    """Background work that begins when the event is set; a lane looks for its end all the time."""
    monkeypatch.setattr("migrator.handover.lane._SERVE_EVERY_S", 0.001)
    begins = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(begins.wait)
        yield pool, begins
        begins.set()


def test_the_broker_is_served_while_a_claim_takes_its_time(
    slowly: tuple[Executor, threading.Event],
) -> None:
    """Of documents it takes longer than a broker keeps a silent connection."""
    world, (pool, begins), served = World(), slowly, 0
    _, _, parts = world.process(Mode.STAGED)
    session, link = world.session(replace(parts, preparing=pool))

    def serve() -> None:
        nonlocal served
        served += 1
        if served == 30:
            begins.set()

    link.on_serve = serve
    assert session.turn(may_claim=True)
    assert served >= 30


@pytest.mark.parametrize("is_resumed", [False, True], ids=["claimed", "resumed"])
def test_a_claim_ends_before_the_next_session_though_the_link_broke_meanwhile(
    monkeypatch: pytest.MonkeyPatch, slowly: tuple[Executor, threading.Event], is_resumed: bool
) -> None:
    """Otherwise two threads would work on the same batch."""
    world, (pool, begins), resumed = World(), slowly, list[Batch]()
    _, _, parts = world.process(Mode.STAGED)
    session, link = world.session(replace(parts, claiming=pool, preparing=pool))
    if is_resumed:
        half = parts.claimer.claim(LEASE, max_rows=BATCH)
        assert half is not None
        world.ledger.batches[half.id] = replace(half, state=BatchState.CLAIMING)
        monkeypatch.setattr(world.ledger, "resume", lambda batch, _lease: resumed.append(batch))

    def breaks() -> None:
        threading.Timer(0.05, begins.set).start()
        raise TargetUnavailable("cut meanwhile")

    link.on_serve = breaks
    with pytest.raises(TargetUnavailable):
        session.recover() if is_resumed else session.turn(may_claim=True)
    assert not resumed
    session.close()
    assert (len(resumed), len(world.ledger.batches)) == (is_resumed, 1)


@pytest.mark.parametrize("mode", FAULTS)
def test_batches_wait_until_their_level_has_room(mode: Mode) -> None:
    """600 rows that all enter level 6 take it 0.42 s to release, and half of that is used."""
    world = World(rows=0, batch=100)
    world.ledger = MemoryLedger([timeout(n, 64.0) for n in range(600)])
    _, _, parts = world.process(mode)
    waits, said = list[float](), set[str]()
    session, _ = world.session(
        replace(parts, paced=waits.append), lambda: said.add(session.activity)
    )
    work(session)
    taken_s = 500 * 7 * 1e-4 / FRACTION  # the last batch waits for those before it
    assert world.clock.elapsed == pytest.approx(taken_s, abs=0.2)
    assert sum(waits) == pytest.approx(taken_s, abs=0.2)
    assert "paced: level 06 releases 1429/s" in said


@pytest.mark.parametrize("mode", FAULTS)
def test_rows_that_are_due_wait_for_no_level(mode: Mode) -> None:
    """They enter none."""
    world = World(rows=600, overdue=600, batch=100)
    world.pacer.book(load([8] * 90_000), now_s=0.0, latest_s=1e9)
    world.run_to_the_end(mode)
    assert world.clock.elapsed < 1.0
    assert len(world.broker.delivered) == 600


class FullLevel(World):
    """Batches wait 17 s for level 11; once the first one does, there are rows that are due."""

    def __init__(self, *, seed: int = 1, full_s: float = 17.0) -> None:
        super().__init__(rows=3 * BATCH, seed=seed)
        if full_s:
            self.fill(full_s)
        self.due = [timeout(n, 0.0) for n in range(100, 100 + BATCH)]

    def fill(self, seconds: float) -> None:
        """Let the level have no room for so long."""
        rows = seconds * FRACTION / EXCHANGE_COST_S
        self.pacer.book(load([3600], weight=rows), now_s=self.clock.elapsed, latest_s=1e9)

    def waiting(self, parts: LaneSetup) -> LaneSession:
        """Return a session during which they come."""

        def guard() -> None:
            if self.due and session.activity.startswith("paced: "):
                self.ledger.stored |= {each.id: each for each in self.due}
                self.ids += [each.id for each in self.due]
                self.due = []

        session, _ = self.session(parts, guard)
        return session


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize(
    ("mode", "name"), [(m, n) for m in FAULTS for n in chain(*FAULTS.values())]
)
def test_rows_that_are_due_go_while_a_batch_waits_for_its_level(
    mode: Mode, name: str, hit: int
) -> None:
    """A kill at each step of either loses nothing, and doubles at most the batch in flight."""
    world = FullLevel()
    _, _, parts = world.process(mode, kill_at(name, hit))
    with contextlib.suppress(Killed):
        work(world.waiting(parts))
    world.die()
    due = world.ids[3 * BATCH :]
    assert len(due) == BATCH
    late_s = [
        (at - START).total_seconds() for each in due if (at := world.broker.earliest.get(each))
    ]
    assert all(each < 1.0 for each in late_s)
    assert len(late_s) == BATCH or name.startswith("direct.")
    world.run_to_the_end(mode)
    assert world.lost() == []
    assert len(world.doubled()) <= (BATCH if name.startswith("direct.") else 0)
    assert {b.state for b in world.ledger.batches.values()} == {BatchState.HANDED_OVER}


@pytest.mark.parametrize("mode", FAULTS)
def test_a_batch_behind_one_that_waits_goes_in_time(mode: Mode) -> None:
    """The seconds in which level 11 would let go are full; the one behind is due in 8 seconds."""
    world = World(rows=BATCH)
    soon = [timeout(n, 8.0) for n in range(100, 100 + BATCH)]
    world.ledger.stored |= {each.id: each for each in soon}
    for second in range(20):
        at_s = 1024.0 + second
        world.pacer.book(load([1024] * 900), now_s=at_s, latest_s=at_s)
    world.pacer.book(load([8] * 5000), now_s=0.0, latest_s=1e9)  # so what is above is claimed first
    world.run_to_the_end(mode)
    late_s = [(world.broker.earliest[each.id] - each.due_at).total_seconds() for each in soon]
    assert max(late_s) < 1.0
    assert world.broker.earliest[world.ids[0]] >= START + timedelta(seconds=20)


def test_rows_that_are_due_make_no_half_answered_batch_go_again() -> None:
    """The link broke within a batch; taken up again it waits, and something else goes meanwhile."""
    world = FullLevel(seed=2, full_s=0.0)  # by this seed what was cut did not arrive
    _, link, parts = world.process(Mode.DIRECT)
    cuts = iter([False] * 6 + [True])
    link.broker.cut = lambda: next(cuts, False)  # type: ignore[method-assign]  # at the fourth row
    session, _ = world.session(parts)
    with pytest.raises(TargetUnavailable):
        work(session)
    session.close()
    assert len(world.broker.delivered) == 3
    world.fill(17.0)
    work(world.waiting(parts))
    assert (world.lost(), world.doubled()) == ([], [])
    assert len(world.broker.delivered) == 4 * BATCH


def test_what_goes_while_another_batch_waits_counts_for_the_rate() -> None:
    """A message a second, whoever waits for what."""
    world = FullLevel(full_s=1.0)
    _, _, parts = world.process(Mode.DIRECT)
    pace = LanePacing(batch_rows=BATCH, rate_limit_per_s=1)
    session = world.waiting(replace(parts, pace=lambda: pace))
    assert session.turn(may_claim=True)
    assert world.clock.elapsed >= 2 * BATCH
    assert len(world.broker.delivered) == 2 * BATCH


def test_a_lane_that_the_rate_limit_holds_says_so() -> None:
    """And that it is no pause, and no slow broker."""
    world = World(rows=BATCH)
    _, _, parts = world.process(Mode.DIRECT)
    pace, said = LanePacing(batch_rows=BATCH, rate_limit_per_s=2), set[str]()
    session, _ = world.session(
        replace(parts, pace=lambda: pace), lambda: said.add(session.activity)
    )
    assert session.turn(may_claim=True)
    assert "throttled: rate limit of 2 messages/s" in said


def test_delays_count_from_when_an_attempt_enters_the_levels() -> None:
    """By how old the last one was then; one that is complete sooner waits, so none is early."""
    world = World(rows=10 * BATCH)
    world.ledger = MemoryLedger([timeout(n, 3600 + n * 0.37) for n in range(10 * BATCH)])
    due_at = {row.id: row.due_at for row in world.ledger.stored.values()}
    world.broker.seconds_per_pass = 0.4
    session, _, _ = world.process(Mode.STAGED)
    for n in range(10):
        if n == 5:
            world.broker.seconds_per_pass = 0.1
        assert session.turn(may_claim=True)
    late_s = [(world.broker.earliest[each] - due_at[each]).total_seconds() for each in world.ids]
    assert min(late_s) >= 0.0
    assert 1.0 < max(late_s[:BATCH]) < 1.41
    assert max(late_s[BATCH:]) < 1.05
