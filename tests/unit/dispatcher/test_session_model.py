"""A dispatcher among queues and tables in memory: killed anywhere, cut anywhere, nothing lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.dispatcher.due import LONGEST_PAUSE
from migrator.dispatcher.loop import DispatcherSession
from migrator.errors import ClockInDoubt, StoreUnavailable
from migrator.nservicebus import headers as h
from migrator.nservicebus.recoverability import OFTEN
from migrator.nservicebus.timeouts import TimeoutId
from tests.unit.dispatcher.world import CONTROL, RETRIES, TIMEOUTS, World

STEPS = (
    "intake.received",
    "intake.stored",
    "intake.acked",
    "dispatch.claimed",
    "dispatch.begun",
    "dispatch.publishing",
    "dispatch.confirmed",
    "dispatch.settled",
    "pass_on.confirmed",
    "control.claimed",
)


def some_work(world: World) -> set[str]:
    """Messages due at once and later, rows due soon, and control messages; return their ids."""
    for number in range(4):
        world.send(number, 0.5)
    for number in range(4, 12):
        world.send(number, 3.0 + number / 10)
    for number in range(12, 18):
        world.store(number, -1.0 + number / 10)
    world.control(world.store(18, -100.0))
    return {f"m-{number}" for number in range(19)}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("hit", [1, 2])
def test_a_kill_at_any_step_loses_nothing(step: str, hit: int) -> None:
    """After a kill the next process finishes; copies exist only where the design says so."""
    world = World()
    expected = some_work(world)
    assert world.kill_at(step, hit) or hit > 1
    in_flight = world.in_flight()
    world.run(20.0)
    delivered = world.delivered()
    assert set(delivered) == expected
    assert not world.early()
    assert {key for key, times in delivered.items() if times > 1} <= in_flight
    assert max(delivered.values()) <= 2
    assert not world.broker.queues[TIMEOUTS]
    assert not world.broker.queues[CONTROL]


@given(seed=st.integers(0, 2**32), rate=st.sampled_from([0.01, 0.05, 0.1]))
@settings(max_examples=40, deadline=None)
def test_cuts_at_random_moments_lose_nothing(seed: int, rate: float) -> None:
    """Whatever connection goes away whenever, everything arrives, and nothing early."""
    world = World(seed=seed)
    expected = some_work(world)
    world.broker.failure_rate = rate
    process = world.run(8.0)
    world.broker.failure_rate = 0.0
    world.run(20.0, process)
    assert set(world.delivered()) == expected
    assert not world.early()


def test_what_was_confirmed_is_not_sent_again_after_an_outage() -> None:
    """A living process remembers what it sent while the database was away."""
    world = World()
    world.store(1, 0.2)
    outage = [StoreUnavailable("down")]

    def fault(step: str) -> None:
        if step == "dispatch.confirmed" and outage:
            raise outage.pop()

    world.run(5.0, world.process(fault))
    assert not outage
    assert world.delivered() == {"m-1": 1}


def test_a_lost_answer_of_the_store_makes_no_second_row() -> None:
    """Committed, but the answer was lost: the redelivered message is known."""
    world = World()
    world.ledger.lose_answer = True
    world.send(1, 3.0)
    world.run(10.0)
    assert world.delivered() == {"m-1": 1}


@pytest.mark.parametrize("is_unbound", [False, True], ids=["missing", "leads nowhere"])
def test_a_lost_destination_keeps_its_rows_parked(*, is_unbound: bool) -> None:
    """Others go on; the rows leave as soon as the destination is there."""
    world = World()
    if is_unbound:  # the broker returns the message
        world.broker.unbound.add("Gone")
    lost = world.store(1, 0.0, to="Gone")
    world.store(2, 0.0)
    process = world.run(30.0)
    assert [row.id for row in world.ledger.parked["Gone"]] == [lost]
    assert world.delivered() == {"m-2": 1}
    assert 3 <= world.ledger.held.now["Gone"].tries <= 5
    assert not world.delivered("error")
    world.broker.destinations.add("Gone")
    world.run(60.0, process)
    assert world.delivered("Gone") == {"m-1": 1}
    assert not world.ledger.held.now


def test_an_exchange_that_was_just_deleted_stops_nobody_else() -> None:
    """Its route is still known, so the link dies once; then the route is looked for again."""
    world = World()
    world.broker.remembered.add("Gone")
    lost = world.store(1, 0.0, to="Gone")
    for number in range(2, 12):
        world.store(number, 0.1)
    world.send(12, 0.0, to="Gone")
    world.run(10.0)
    parked = [row.id for row in world.ledger.parked["Gone"]]
    assert lost in parked
    assert len(parked) == 2  # what is delivered again is stored
    assert world.delivered() == {f"m-{number}": 1 for number in range(2, 12)}


@pytest.mark.parametrize(("retries", "queue"), [({}, RETRIES[0]), ({h.OUR_RETRIES: "2"}, "error")])
def test_a_message_that_fails_goes_to_the_next_queue(retries: dict[str, str], queue: str) -> None:
    """Five attempts at once, then a copy in each retry queue in turn, then in the error queue."""
    world = World()
    world.send(1, 0.0, to="Gone", **retries)
    world.run(2.0)
    assert world.delivered(queue) == {"m-1": 1}
    assert not world.broker.queues[TIMEOUTS]
    (copy,) = [each.message for each in world.broker.arrived]
    assert copy.headers.get("NServiceBus.FailedQ") == (TIMEOUTS if retries else None)
    assert copy.headers.get(h.OUR_RETRIES) == (None if retries else "1")


def test_a_row_the_store_refuses_fails_alone() -> None:
    """The other messages of its chunk are stored."""
    world = World()
    world.ledger.refused.add("Refused")
    world.send(1, 5.0)
    world.send(2, 5.0, to="Refused")
    world.send(3, 5.0)
    world.run(2.0)
    assert len(world.ledger.stored) == 2
    assert world.delivered(RETRIES[0]) == {"m-2": 1}


@pytest.mark.parametrize("retries", [RETRIES, ()], ids=["retry queues", "none"])
def test_without_an_error_queue_a_message_waits(retries: Sequence[str]) -> None:
    """In the last retry queue, or where it is, blocking nobody; until the error queue exists."""
    world = World(retries=retries)
    world.broker.destinations.discard("error")
    world.put(TIMEOUTS, {}, message_id="bad")
    world.send(1, 0.0)
    process = world.run(12.0)
    assert world.delivered() == {"m-1": 1}
    assert world.delivered(RETRIES[-1]) == ({"bad": 1} if retries else {})
    assert len(world.broker.queues[TIMEOUTS]) == (0 if retries else 1)
    world.broker.destinations.add("error")
    world.run(12.0, process)
    assert world.delivered("error") == ({} if retries else {"bad": 1})
    assert not world.broker.queues[TIMEOUTS]


def test_a_full_destination_holds_its_own_rows_and_no_others() -> None:
    """What the broker refuses is parked; others are sent, and draining ends."""
    world = World()
    world.broker.full.add("Full")
    world.broker.destinations.add("Full")
    for number in range(20):
        world.store(number, number / 2, to="Full")
    for number in range(20, 30):
        world.store(number, 10.0)
    world.send(30, 0.0, to="Full")
    process = world.run(15.0)
    assert world.delivered() == {f"m-{number}": 1 for number in range(20, 30)}
    assert world.delivered(RETRIES[0]) == {"m-30": 1}
    assert world.ledger.held.now["Full"].reason == "refused"
    world.broker.full.clear()
    world.run(90.0, process)
    assert world.delivered("Full") == {f"m-{number}": 1 for number in range(20)}


def turns(world: World, session: DispatcherSession, seconds: float) -> None:
    """Have a session work for a while."""
    until = world.clock.elapsed + seconds
    while world.clock.elapsed < until:
        session.turn(may_take=True)


def test_a_destination_that_answers_nothing_gets_one_row_and_no_second_copy() -> None:
    """Others are sent; what is in hand for it stays so until it answers, and is settled then."""
    world = World()
    world.broker.silent.add("Hung")
    world.broker.destinations.add("Hung")
    for number in range(20):
        world.store(number, number / 2, to="Hung")
    for number in range(20, 30):
        world.store(number, 10.0)
    session = world.session(world.process())
    turns(world, session, 15.0)
    assert world.link is not None
    assert (len(world.delivered()), len(world.delivered("Hung"))) == (10, 1)
    assert world.ledger.held.now["Hung"].reason == "no-answer"
    world.broker.silent.clear()
    world.link.answer()
    turns(world, session, 30.0)
    assert world.delivered("Hung") == {f"m-{number}": 1 for number in range(20)}


def test_a_message_passed_on_to_a_queue_that_answers_nothing_stays_in_hand() -> None:
    """It is acknowledged once the answer comes."""
    world = World()
    world.broker.silent.add("Hung")
    world.broker.destinations.add("Hung")
    world.send(1, 0.0, to="Hung")
    session = world.session(world.process())
    turns(world, session, 15.0)
    assert world.link is not None
    assert (world.delivered("Hung"), len(world.link.unacked)) == ({"m-1": 1}, 1)
    world.broker.silent.clear()
    world.link.answer()
    turns(world, session, 5.0)
    assert (world.delivered("Hung"), len(world.link.unacked)) == ({"m-1": 1}, 0)


def test_a_destination_we_may_not_write_to_holds_its_own_rows_and_no_others() -> None:
    """The broker ends the channel for it; the message it is for is found, the others are sent."""
    world = World()
    world.broker.forbidden.add("Secret")
    world.broker.destinations.add("Secret")
    world.store(1, 0.0, to="Secret")
    for number in range(2, 7):
        world.store(number, 0.0)
    world.run(14.0)
    assert world.delivered() == {f"m-{number}": 1 for number in range(2, 7)}
    assert world.ledger.held.now["Secret"].reason == "refused"
    assert len(world.ledger.parked["Secret"]) == 1


def test_a_row_the_broker_never_takes_goes_to_quarantine() -> None:
    """The others, for the same destination, are sent."""
    world = World()
    world.broker.poison.add("m-1")
    for number in range(1, 6):
        world.store(number, 0.0)
    world.run(20.0)
    assert world.delivered() == {f"m-{number}": 1 for number in range(2, 6)}
    assert sum(map(len, world.ledger.quarantined.values())) == 1


def test_deliveries_stay_in_hand_while_the_store_is_away() -> None:
    """Coming back counts on a queue with a delivery limit, so nothing is given back."""
    world = World()
    process = world.process()
    session = world.session(process)
    while not session.has_polled:
        session.turn(may_take=True)
    world.ledger.is_down = True
    world.send(1, 3000.0)
    for _ in range(300):
        session.turn(may_take=True)
    assert isinstance(session.problem, StoreUnavailable)
    assert world.link is not None
    assert len(world.link.unacked) == 1
    world.ledger.is_down = False
    for _ in range(300):
        session.turn(may_take=True)
    assert session.problem is None
    assert len(world.ledger.stored) == 1
    assert not world.link.unacked


def test_a_clock_in_doubt_is_one_problem_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """That what is left open can be looked for meanwhile is no recovery: it would be told so."""
    world = World()
    session = world.session(world.process())
    while not session.has_polled:
        session.turn(may_take=True)
    with monkeypatch.context() as patch:
        now = world.clock.now

        def in_doubt() -> datetime:
            raise ClockInDoubt("it jumped", earliest=now())

        patch.setattr(world.clock, "now", in_doubt)
        while session.problem is None:
            session.turn(may_take=True)
        for _ in range(300):
            session.turn(may_take=True)
            assert isinstance(session.problem, ClockInDoubt)
    world.store(1, 1.0)
    for _ in range(300):
        session.turn(may_take=True)
    assert session.problem is None
    assert world.delivered() == {"m-1": 1}


def test_nothing_is_consumed_before_the_store_has_answered() -> None:
    """A session that ends for want of the database must not have touched the queues."""
    world = World()
    world.ledger.is_down = True
    world.send(1, 30.0)
    session = world.session(world.process())
    for _ in range(50):
        session.turn(may_take=True)
    assert world.link is not None
    assert not world.link.consumed


def test_a_message_that_may_have_been_stored_is_not_passed_on() -> None:
    """Killed between commit and acknowledgement, and due meanwhile: the row alone is sent."""
    world = World()
    world.send(1, 2.0)
    assert world.kill_at("intake.stored")
    world.clock.elapsed += 5.0
    world.run(5.0)
    assert world.delivered() == {"m-1": 1}


def test_nothing_is_dropped_for_having_come_back_too_often() -> None:
    """Killed more often than a quorum queue of RabbitMQ 4 lets a message come back."""
    world = World()
    world.broker.delivery_limit = 20
    world.send(1, 600.0)
    world.send(2, 600.0)
    for _ in range(25):
        assert world.kill_at("intake.stored")
    world.run(1.0)
    assert not world.broker.dropped
    assert not world.broker.queues[TIMEOUTS]
    assert len(world.ledger.stored) == 2


def test_a_copy_of_a_message_that_was_stored_is_not_passed_on() -> None:
    """It takes over when the message is due, and nobody had the copy before; the row is sent."""
    world = World()
    world.broker.delivery_limit = 20
    world.send(1, 30.0)
    for _ in range(OFTEN):
        assert world.kill_at("intake.stored")
    world.clock.elapsed += 40.0
    world.run(5.0)
    assert world.delivered() == {"m-1": 1}
    assert not world.broker.queues[TIMEOUTS]


def test_without_a_right_to_its_own_queue_a_message_that_came_back_often_is_stored() -> None:
    """The copy is refused, so the message itself is taken in while there is time."""
    world = World()
    world.broker.delivery_limit = 20
    world.broker.forbidden.add(TIMEOUTS)
    world.send(1, 600.0)
    message = world.broker.queues[TIMEOUTS].popleft()
    headers = {**message.raw_headers, "x-delivery-count": OFTEN}
    world.broker.put(TIMEOUTS, replace(message, raw_headers=headers))
    world.run(10.0)
    assert not world.broker.dropped
    assert len(world.ledger.stored) == 1
    assert not world.broker.queues[TIMEOUTS]


def test_what_fails_while_it_is_held_does_not_prolong_the_wait() -> None:
    """Control messages for rows of a held destination are no tries."""
    world = World()
    ids = [world.store(number, 0.0, to="Gone") for number in range(10)]
    process = world.run(2.0)
    for key in ids:
        world.control(key)
        world.run(0.1, process)
    assert world.ledger.held.now["Gone"].tries <= 2


def test_stored_rows_are_sent_although_the_queue_of_new_ones_is_missing() -> None:
    """Somebody deleted it; it is looked for now and then, and consumed when it is back."""
    world = World()
    queue = world.broker.queues.pop(TIMEOUTS)
    for number in range(5):
        world.store(number, 4.0 * number)
    process = world.run(30.0)
    assert world.delivered() == {f"m-{number}": 1 for number in range(5)}
    world.broker.queues[TIMEOUTS] = queue
    world.send(9, 0.0)
    world.run(15.0, process)
    assert world.delivered()["m-9"] == 1


def test_overdue_rows_share_no_batch_with_rows_to_come() -> None:
    """The batch would stay open until the last is due, and a kill would double all of it."""
    world = World()
    for number in range(3):
        world.store(number, -1.0)
    world.store(3, 0.9)
    world.run(3.0)
    assert [batch.size for batch in world.ledger.batches.values()] == [3, 1]


def test_at_rest_a_dispatcher_only_looks_and_less_often() -> None:
    """A claim that finds nothing takes a transaction id; rows due in an hour are nothing."""
    world = World()
    world.store(1, 3600.0)
    world.run(60.0)
    assert world.ledger.claims_in_vain == 0
    assert world.ledger.looks <= 60 / LONGEST_PAUSE.total_seconds() + 2


def test_rows_that_get_due_while_it_rests_are_sent_when_due() -> None:
    """However long the pauses are by then: the last look saw them coming."""
    world = World()
    for number in range(40):
        world.store(number, 20.0 + 1.3 * number)
    world.run(80.0)
    assert len(world.delivered()) == 40
    assert not world.early()
    assert world.most_late_s() < 0.2


@pytest.mark.parametrize("after_s", [30.0, 30.3, 30.6, 30.9, 31.2, 31.5])
def test_a_row_that_another_program_writes_while_it_rests_is_late_by_less_than_two_seconds(
    after_s: float,
) -> None:
    """Its due time is now, and nobody tells us."""
    world = World()
    session = world.session(world.process())
    while world.clock.elapsed < after_s:
        session.turn(may_take=True)
    world.store(1, 0.0)
    while world.clock.elapsed < after_s + 5:
        session.turn(may_take=True)
    assert world.delivered() == {"m-1": 1}
    assert world.most_late_s() < 2.0


@pytest.mark.parametrize("after_s", [30.0, 30.3, 30.6, 30.9, 31.2, 31.5])
def test_a_message_that_is_stored_while_it_rests_is_sent_when_due(after_s: float) -> None:
    """It is due before the next look would have been."""
    world = World()
    session = world.session(world.process())
    while world.clock.elapsed < after_s:
        session.turn(may_take=True)
    world.send(1, 1.1)
    while world.clock.elapsed < after_s + 5:
        session.turn(may_take=True)
    assert world.delivered() == {"m-1": 1}
    assert not world.early()
    assert world.most_late_s() < 0.2


def test_draining_finishes_what_is_claimed_and_takes_nothing_new() -> None:
    """What is not claimed yet stays in the table and in the queue."""
    world = World()
    world.store(1, 1.0)
    world.store(2, 30.0)
    process = world.process()
    session = world.session(process)
    for _ in range(3):
        session.turn(may_take=True)
    world.send(3, 30.0)
    while session.turn(may_take=False):
        pass
    world.die()
    assert world.delivered() == {"m-1": 1}
    assert set(world.ledger.stored) == {TimeoutId("00000000-0000-0000-0000-000000000002")}
    assert len(world.broker.queues[TIMEOUTS]) == 1


# ── forwarding ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step", ["intake.received", "forward.confirmed"])
def test_a_kill_while_forwarding_loses_nothing(step: str) -> None:
    """Copies exist only between confirm and acknowledgement."""
    world = World(forwards=True)
    for number in range(10):
        world.send(number, 100.0)
    assert world.kill_at(step)
    world.run(5.0)
    found = {str(each.message.message_id) for each in world.broker.arrived}
    assert found == {f"m-{number}" for number in range(10)}
    if step == "intake.received":
        assert len(world.broker.arrived) == 10
