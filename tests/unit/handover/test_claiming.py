"""Tests of ``migrator.handover.claiming``: what is held is left out, and choices may change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.releases import load
from migrator.errors import StoreError, StoreLocked, StoreUnavailable
from migrator.handover.claiming import ClaimableCache, Claimer, PassSize
from migrator.handover.pacing import Pacer
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, RunId
from migrator.stores.endpoints import Selection
from migrator.stores.requests import Claim, ClaimRequest
from migrator.throttle.guard import ClaimGuard
from tests.unit.handover.memory import LEASE, START, MemoryClock, MemoryLedger, timeout

ENDPOINTS = [
    StoreEndpoint(name=EndpointName(name), source=f"public.{name}") for name in ("A", "B", "C")
]


class Store:
    """One heap of rows for each endpoint."""

    can_seek = True
    is_atomic = True

    def __init__(self, rows: int) -> None:
        self.ledgers = {
            endpoint.name: MemoryLedger([timeout(n, 3600.0 + n) for n in range(rows)])
            for endpoint in ENDPOINTS
        }
        self.asked: list[EndpointName] = []
        self.looks = 0
        self.broken: dict[EndpointName, StoreError] = {}
        """Claims of them fail."""
        self.unreadable: dict[EndpointName, StoreError] = {}
        """Looks at them fail."""

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        self.looks += 1
        for each in requests:
            if (error := self.unreadable.get(each.endpoint.name)) is not None:
                raise error
        return [r for r in requests if self.ledgers[r.endpoint.name].stored]

    def claim(self, request: ClaimRequest) -> Claim | None:
        self.asked.append(request.endpoint.name)
        if (error := self.broken.get(request.endpoint.name)) is not None:
            raise error
        return self.ledgers[request.endpoint.name].claim(request)


def claimed(claimer: Claimer, times: int) -> list[str]:
    """Return whose rows so many claims got; ``-`` where there was nothing."""
    batches = [claimer.claim(LEASE, max_rows=2) for _ in range(times)]
    return ["-" if batch is None else batch.endpoint for batch in batches]


def lane_of(store: Store, clock: MemoryClock | None = None, **options: Any) -> Claimer:
    """Return a lane of all three endpoints, with a cutoff of a minute unless told otherwise."""
    given: dict[str, Any] = {
        "claims": store,
        "clock": clock or MemoryClock(),
        "selection": lambda: Selection(cutoff=timedelta(minutes=1), horizon=None),
        "endpoints": [(endpoint, RunId(n)) for n, endpoint in enumerate(ENDPOINTS)],
        "mode": Mode.STAGED,
        "max_bytes": 1 << 20,
        "pacer": Pacer(),
    }
    given["claimable"] = ClaimableCache(given["claims"], given["clock"])
    return Claimer(**given | options)


class Guard(ClaimGuard):
    """Refuses the endpoints that are *held*; the table of *gone* cannot be read."""

    def __init__(self, held: set[str], gone: str = "") -> None:
        self._held, self._gone = held, gone

    def admit(self, endpoint: EndpointName) -> bool:
        if endpoint == self._gone:
            raise StoreError("public.A is not a timeouts table, or no longer exists")
        return endpoint not in self._held


def test_a_held_endpoint_is_left_out_and_the_others_go_round() -> None:
    """It is not even asked for, and has its turn again as soon as nothing holds it."""
    store, held = Store(20), {"B"}
    lane = lane_of(store, guard=Guard(held))
    assert claimed(lane, 4) == ["A", "C", "A", "C"]
    assert "B" not in store.asked
    held.clear()
    assert sorted(claimed(lane, 3)) == ["A", "B", "C"]
    held |= {"A", "B", "C"}
    store.asked.clear()
    assert claimed(lane, 1) == ["-"]
    assert store.asked == []


@pytest.mark.parametrize("error", [StoreError("no such table"), StoreLocked("a lock timeout")])
def test_a_table_that_fails_is_left_out_alone_until_it_answers(error: StoreError) -> None:
    """The claim that met it costs the others no turn; it is asked again less and less often."""
    store, clock = Store(40), MemoryClock()
    store.broken = {EndpointName("A"): error}
    lane = lane_of(store, clock)
    failing = lane.claimable.failing
    for times, wait_s in enumerate([1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0], 1):
        assert sorted(claimed(lane, 4)) == ["B", "B", "C", "C"]
        (known,) = failing.all()
        assert (known.next_s - clock.elapsed, known.is_left_out) == (wait_s, True)
        assert store.asked.count(EndpointName("A")) == times
        clock.elapsed += wait_s
        failing.note_answered("public.A")
    assert not failing.is_any_awaited()
    store.broken.clear()
    failing.note_answered("public.A")
    clock.elapsed += 1.0
    assert "A" in claimed(lane, 3)
    assert failing.all() == []


def test_a_look_that_one_table_refuses_asks_the_others_alone() -> None:
    """None of them is held up, and what fails is not asked again."""
    store, clock = Store(4), MemoryClock()
    store.unreadable = {EndpointName("A"): StoreLocked("locked"), EndpointName("C"): StoreError()}
    lane = lane_of(store, clock)
    assert claimed(lane, 3) == ["B", "B", "-"]
    assert store.looks == 1 + 3 + 1
    assert [each.endpoint.name for each in lane.claimable.failing.all()] == ["A", "C"]


def test_a_database_that_does_not_answer_is_no_matter_of_one_table() -> None:
    """Nor is an answer after which rows may be half claimed, as of documents."""
    store = Store(4)
    store.broken = {EndpointName("A"): StoreUnavailable("gone")}
    with pytest.raises(StoreUnavailable):
        lane_of(store).claim(LEASE, max_rows=2)
    store.broken, store.is_atomic = {EndpointName("A"): StoreError("half-done")}, False
    with pytest.raises(StoreError):
        lane_of(store).claim(LEASE, max_rows=2)


def test_a_table_whose_due_times_cannot_be_read_keeps_no_other_from_its_turn() -> None:
    """It is gone, say, before its first claim."""
    store = Store(4)

    guard = Guard(set(), gone="A")
    assert sorted(claimed(lane_of(store, guard=guard), 5)) == ["-", "B", "B", "C", "C"]


def test_a_new_cutoff_counts_from_the_next_claim_on() -> None:
    """Without anything being opened anew."""
    store, cutoff = Store(4), timedelta(hours=2)
    lane = lane_of(
        store,
        selection=lambda: Selection(cutoff=cutoff, horizon=None),
        endpoints=[(ENDPOINTS[0], RunId(1))],
    )
    assert claimed(lane, 1) == ["-"]
    cutoff = timedelta(minutes=1)
    assert claimed(lane, 3) == ["A", "A", "-"]


def test_where_a_look_finds_nothing_nothing_is_claimed() -> None:
    """A claim writes even when it finds nothing; all lanes share the answer for a moment."""
    store, clock = Store(0), MemoryClock()
    cache = ClaimableCache(store, clock)  # type: ignore[arg-type]  # only what is asked
    lanes = [lane_of(store, clock, claimable=cache) for _ in range(4)]
    for lane in lanes:
        assert claimed(lane, 3) == ["-"] * 3
    assert (store.asked, store.looks) == ([], 1)
    store.ledgers[EndpointName("B")] = MemoryLedger([timeout(0, 3600.0)])
    clock.elapsed += 1.0
    assert claimed(lanes[0], 2) == ["B", "-"]
    assert set(store.asked) == {"B"}


@pytest.mark.parametrize(("cutoff_s", "longest_s"), [(0.0, 1.5), (60.0, 10.0)])
def test_the_longer_there_is_nothing_the_less_often_it_is_looked_for(
    cutoff_s: float, longest_s: float
) -> None:
    """Who writes a row that is due at once is waited for no longer than the promise allows."""
    store, clock = Store(0), MemoryClock()
    cutoff = timedelta(seconds=cutoff_s)
    lane = lane_of(store, clock, selection=lambda: Selection(cutoff=cutoff, horizon=None))
    seen_s: list[float] = []
    while clock.elapsed < 60.0:
        before = store.looks
        assert lane.claim(LEASE, max_rows=2) is None
        seen_s += [clock.elapsed] * (store.looks - before)
        clock.elapsed += 0.1
    pauses = [late - early for early, late in pairwise(seen_s)]
    assert pauses[0] < 1.0
    assert max(pauses) <= longest_s + 0.2
    assert len(seen_s) <= 60 / longest_s + 4
    lane.claimable.forget()
    assert lane.claim(LEASE, max_rows=2) is None
    assert lane.claimable.rest_s <= 0.5
    store.ledgers[EndpointName("B")] = MemoryLedger([timeout(0, 3600.0)])
    lane.claimable.forget()
    assert claimed(lane, 1) == ["B"]


def test_who_asks_for_overdue_rows_again_and_again_looks_now_and_then() -> None:
    """A lane whose receipt is late asks at each turn of its wait, however many rows are to come."""
    store, clock = Store(4), MemoryClock()
    lane = lane_of(store, clock, selection=lambda: Selection(cutoff=timedelta(0), horizon=None))
    for _ in range(10):
        assert lane.claim(LEASE, max_rows=2, only_overdue=True) is None
    assert store.looks == 1
    store.ledgers[EndpointName("B")] = MemoryLedger([timeout(0, -1.0)])
    clock.elapsed += 0.6
    assert lane.claim(LEASE, max_rows=2, only_overdue=True) is not None


def test_an_endpoint_that_gets_rows_has_its_turn_while_another_has_many() -> None:
    """A lane that is busy looks at the others every now and then."""
    store, clock = Store(0), MemoryClock()
    lane = lane_of(store, clock)
    store.ledgers[EndpointName("A")] = MemoryLedger([timeout(n, 3600.0 + n) for n in range(40)])
    assert claimed(lane, 2) == ["A", "A"]
    store.ledgers[EndpointName("C")] = MemoryLedger([timeout(0, 3600.0)])
    clock.elapsed += 1.0
    assert sorted(claimed(lane, 2)) == ["A", "C"]


def test_the_size_of_attempts_halves_once_and_grows_again() -> None:
    """Attempts on their way together count once; between the limits it neither swings nor stays."""
    wished = 1000
    size = PassSize(lambda: wished)
    assert size.resize(1000, 3.0)
    assert not size.resize(1000, 3.0)  # claimed at the former size
    assert size.rows == 500
    assert not size.resize(500, 1.2)
    while size.rows < 1000:
        before = size.rows
        size.resize(before, 0.5)
        assert before < size.rows <= 2 * before
    wished = 2000
    assert size.rows == 2000


def test_a_few_rows_are_always_taken() -> None:
    """However slow all is, rows go on; a wish for fewer is granted."""
    size = PassSize(lambda: 1000)
    for _ in range(20):
        size.halve(size.rows)
    assert size.rows == 50
    small = PassSize(lambda: 20)
    assert not small.resize(20, 9.0)
    assert small.rows == 20


class Ledger(MemoryLedger):
    """Rows of one endpoint, due in so many seconds; remembers what was asked for."""

    def __init__(self, due_in_s: Sequence[float]) -> None:
        super().__init__([timeout(n, due_s) for n, due_s in enumerate(due_in_s)])
        self.requests: list[ClaimRequest] = []

    def claim(self, request: ClaimRequest) -> Claim | None:
        self.requests.append(request)
        return super().claim(request)


def one_endpoint(ledger: Ledger, clock: MemoryClock, pacer: Pacer) -> Claimer:
    """Return a lane of one endpoint, without a cutoff."""
    return lane_of(
        ledger,  # type: ignore[arg-type]  # of one endpoint
        clock,
        endpoints=[(ENDPOINTS[0], RunId(1))],
        selection=lambda: Selection(cutoff=timedelta(0), horizon=None),
        pacer=pacer,
    )


def fill(pacer: Pacer, level: int, clock: MemoryClock, *, seconds: float = 1.0) -> None:
    """Have *level* do nothing else for a while."""
    found = load([2**level], weight=seconds / ((level + 1) * 1e-4))
    pacer.book(found, now_s=clock.elapsed, latest_s=1e9)


def due_s(ledger: Ledger, claimer: Claimer, max_rows: int = 2) -> list[float]:
    """Claim; return in how many seconds after the start what came is due."""
    batch = claimer.claim(LEASE, max_rows=max_rows)
    rows = [] if batch is None else ledger.batch_rows[batch.id]
    return [(row.due_at - START).total_seconds() for row in rows]


def test_rows_of_the_level_that_has_room_first_are_claimed_while_one_is_full() -> None:
    """The soonest due where several have; each level goes on where it was."""
    ledger = Ledger([70, 71, 72, 73, 74, 75, 150, 151, 152, 153, 3600, 3601])
    clock, pacer = MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    assert due_s(ledger, lane) == [70, 71]
    fill(pacer, 6, clock)
    assert due_s(ledger, lane) == [150, 151]
    clock.elapsed += 0.01
    assert due_s(ledger, lane) == [152, 153]
    fill(pacer, 7, clock)
    assert due_s(ledger, lane) == [3600, 3601]
    fill(pacer, 11, clock)
    assert due_s(ledger, lane) == [72, 73]  # then it waits for the soonest
    clock.elapsed += 3.0
    assert due_s(ledger, lane) == [74, 75]


def test_levels_fill_side_by_side() -> None:
    """While each is filled, rows of the one that is free first are claimed, not of the lowest."""
    ledger = Ledger([70.0] * 8 + [150.0] * 8 + [3600.0] * 8)
    clock, pacer = MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    found = [due_s(ledger, lane)[0] for _ in range(12)]
    assert sorted(found[:3]) == sorted(found[3:6]) == sorted(found[6:9]) == [70, 150, 3600]


def test_quarters_of_a_high_level_have_their_turns() -> None:
    """Rows due one after the other would all go through the same few levels below."""
    quarter_s = 2**17 / 4
    due = [round(2**17 + quarter * quarter_s + 100 + n) for quarter in range(4) for n in range(3)]
    ledger, clock, pacer = Ledger([1.0 * each for each in due]), MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    assert due_s(ledger, lane, 1) == [due[0]]
    assert due_s(ledger, lane, 1) == [due[1]]  # no higher level has any
    assert [due_s(ledger, lane, 1)[0] for _ in range(4)] == [due[3], due[6], due[9], due[2]]
    assert sorted(due_s(ledger, lane, 1)[0] for _ in range(6)) == [*due[4:6], *due[7:9], *due[10:]]


def test_a_store_that_has_to_list_everything_is_asked_for_the_soonest_alone() -> None:
    """Of 200 000 documents it remembers what lies behind the range it was asked for last."""
    ledger, clock, pacer = Ledger([70.0, 71.0, 150.0]), MemoryClock(), Pacer()
    ledger.can_seek = False
    lane = one_endpoint(ledger, clock, pacer)
    for expected in (70.0, 71.0):
        fill(pacer, 6, clock, seconds=60.0)
        assert due_s(ledger, lane, 1) == [expected]


def test_a_cutoff_beyond_the_horizon_leaves_nothing_to_claim() -> None:
    """Set while it runs, say; whichever level is full."""
    ledger, clock, pacer = Ledger([70.0, 2.0**17 + 100]), MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    lane.selection = lambda: Selection(cutoff=timedelta(days=2), horizon=timedelta(days=1))
    fill(pacer, 17, clock, seconds=60.0)
    assert due_s(ledger, lane) == []


def test_where_no_level_is_full_claims_are_as_they_would_be_without_a_pace() -> None:
    """As many, as large, and over the same ranges."""
    due = [1.0 * n for n in range(5, 900, 7)] + [1e4 * n for n in range(7, 90)]
    asked = []
    for is_on in (True, False):
        ledger, clock = Ledger(due), MemoryClock()
        lane = one_endpoint(ledger, clock, Pacer(is_on=lambda is_on=is_on: is_on))  # type: ignore[misc]
        while due_s(ledger, lane, 20):
            clock.elapsed += 0.1
        asked.append(ledger.requests)
    assert asked[0] == asked[1]


def test_a_store_with_rows_for_one_level_is_hardly_asked_for_others() -> None:
    """A claim that finds nothing has written all the same."""
    ledger, clock, pacer = Ledger([64.0 + n / 100 for n in range(60)]), MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    due_s(ledger, lane)
    for _ in range(20):
        fill(pacer, 6, clock, seconds=0.01)
        fill(pacer, 6, clock, seconds=1.0)
        assert due_s(ledger, lane)
        clock.elapsed += 0.01
    assert len([r for r in ledger.requests if r.due_after and r.due_after > START]) <= 21 + 1


def test_batches_for_a_level_that_lets_go_slowly_are_smaller() -> None:
    """What enters it at once must leave it within 0.06 s: 85 rows of 64 s."""
    ledger, clock, pacer = Ledger([64.0] * 2000), MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    assert len(due_s(ledger, lane, 5000)) == 300  # nothing is known yet
    fill(pacer, 6, clock, seconds=0.01)
    assert len(due_s(ledger, lane, 5000)) == 85
    assert len(due_s(ledger, lane, 50)) == 50


@given(
    due=st.lists(
        st.one_of(st.floats(1.0, 5000.0), st.floats(2.0**16 - 100, 2.0**18 + 100)), max_size=60
    ),
    steps=st.lists(
        st.tuples(st.one_of(st.integers(0, 12), st.integers(16, 18)), st.floats(0.0, 40.0)),
        max_size=40,
    ),
)
def test_every_row_is_claimed_once_whichever_levels_are_full(
    due: list[float], steps: list[tuple[int, float]]
) -> None:
    """Rows come down into lower levels meanwhile; none is passed over for ever."""
    ledger, clock, pacer = Ledger(due), MemoryClock(), Pacer()
    lane = one_endpoint(ledger, clock, pacer)
    found: list[float] = []
    for level, wait_s in steps:
        fill(pacer, level, clock, seconds=60.0)
        clock.elapsed += wait_s
        found += due_s(ledger, lane, 3)
    for _ in range(200):
        clock.elapsed += 1.0
        found += due_s(ledger, lane, 3)
    assert sorted(found) == sorted(
        (row.due_at - START).total_seconds() for row in Ledger(due).stored.values()
    )
