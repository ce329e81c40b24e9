"""Tests of ``migrator.verify``: what does not agree is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.delays.tagged import Place
from migrator.ledger.report import DoubtfulBatch
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import BatchId, Lane, TimeoutId
from migrator.verify import report, verify
from migrator.verify.report import SLACK, Discrepancy, EvidenceRecord, RowKey, Verdict
from migrator.verify.rules import can_be_in, is_another_copy
from tests.unit.verify.world import BILLING, DAY, NOW, SALES, V1, V2, World


def healthy(count: int = 5) -> World:
    """Return a world in which everything agrees."""
    world = World()
    for n in range(count):
        world.hand_over(DAY + n * timedelta(hours=1))
    return world


def counts(world: World, **plan: Any) -> dict[str, int]:
    """Return what is wrong in *world*, by kind."""
    return {str(kind): count for kind, count in world.verified(**plan).counts.items()}


def test_what_agrees_is_balanced() -> None:
    """In whatever state rows are; what others sent is none of our business."""
    world = healthy()
    for state in ("claimed", "staging", "quarantined", "released", "recalled", "doubtful"):
        world.add(state=state, handed_over_at=None)
    world.add(timedelta(seconds=-1))  # due, and gone
    world.put(world.add(state="committing", handed_over_at=None))  # a daemon works
    for headers in ({}, {"NServiceBus.RelatedToTimeoutId": b"\xff"}):
        world.put(world.table[0], raw_key=b"what?", app_id=None, headers=headers)
    # a delayed retry has the id of the timeout it once was, and is somebody else's
    gone = world.add(timedelta(seconds=-60))
    for mark in ("", "migrator/zz/1.1.3", "migrator/a1/1.1.receipt", "Sales", "migrator/a1/7.1.3"):
        world.put(gone, level=12, app_id=mark)
    found = world.verified()
    assert (found.verdict, found.discrepancies, found.not_checked) == (Verdict.BALANCED, (), ())
    assert (found.rows_checked, found.waiting) == (14, 5)
    assert sum(level.ours or 0 for level in found.levels) == 6
    assert sum(level.foreign or 0 for level in found.levels) == 7
    assert world.closed == dict.fromkeys(range(28), 1)  # no second look, and all has gone back


def test_without_a_scan_the_levels_are_counted() -> None:
    """And it is said that nobody looked at each message."""
    world = healthy()
    found = world.verified(is_scan=False)
    assert found.verdict is Verdict.BALANCED
    assert "only --deep" in found.not_checked[0]
    assert not world.closed
    assert {level.ours for level in found.levels} == {None}
    assert sum(level.total or 0 for level in found.levels) == 5
    assert {*world.verdicts().values()} == {"not_looked"}


def test_doubt_is_not_agreement() -> None:
    """Nor is it a discrepancy, which outweighs it."""
    world = healthy()
    world.doubtful = [
        DoubtfulBatch(
            batch=BatchId(9),
            endpoint=SALES,
            lane=Lane(0),
            mode=Mode.STAGED,
            attempt=1,
            size=1,
            since=NOW,
        )
    ]
    found = world.verified()
    assert (found.verdict, found.doubtful) == (Verdict.DOUBTFUL, (BatchId(9),))
    assert world.verified(endpoints=frozenset({BILLING})).verdict is Verdict.BALANCED
    world.put(world.table[0])
    assert world.verified().verdict is Verdict.DISCREPANT


# ── what does not agree ─────────────────────────────────────────────────────────────────────────


def test_each_timeout_has_its_verdict() -> None:
    """Also those of which something was found out at the end."""
    world = healthy(4)
    world.add(state="quarantined", reason="no-destination", handed_over_at=None)
    world.add(-DAY)
    world.add(handed_over_at=NOW + timedelta(seconds=1))
    world.legacy = {"t3", world.add(state="recalled").timeout_id}
    world.take_out(world.table[0])
    world.damaged = {2}
    world.put(world.table[3])
    found = world.verified()
    assert world.verdicts() == {
        1: "missing_from_levels",
        2: "content_changed",
        3: "in_both_places",
        4: "twice_in_levels",
        5: "agrees",
        6: "left",
        7: "not_seen",
        8: "agrees",
    }
    assert (world.lines[4].level, sorted(world.amended)) == (16, [1, 3])
    assert {each.kind: each.timeout_id for each in found.discrepancies} == {
        "twice_in_levels": "t4",
        "content_changed": "t2",
        "missing_from_levels": "t1",
        "in_both_places": "t3",
    }
    assert "1 timeout handed over while" in found.not_checked[0]
    again = {level for level, times in world.closed.items() if times == 2}
    assert again == set(range(16, 28))  # only where the missing one can be


def _with_another_body(world: World) -> None:
    world.take_out(world.table[0])
    world.put(world.table[0], body=b"another")


def _with_another_id(world: World) -> None:
    world.take_out(world.table[0])
    world.put(world.table[0]._replace(timeout_id=TimeoutId("t77")))


def _claimed_again(world: World) -> None:
    world.put(world.add(state="recalled", batch=BatchId(2), timeout_id=TimeoutId("t1")))


def _late(world: World) -> None:
    for seconds in (-30, -20):  # by less, somebody who looked may have made it
        world.put(world.add(timedelta(seconds=seconds)))


def _gone(world: World) -> None:
    world.unexplained = 2


def _in_state(state: str) -> Callable[[World], None]:
    return lambda world: world.change(world.table[0], state=state)


@pytest.mark.parametrize(
    ("plant", "expected", "detail"),
    [
        (_with_another_body, {"different_in_levels": 1}, "carries its tag, but not its body"),
        (
            _with_another_id,
            {"different_in_levels": 1, "missing_from_levels": 1},
            "carries its tag, but is timeout t77",
        ),
        (_claimed_again, {"stray_in_levels": 1}, "but the timeout is recalled"),
        *(
            (
                _in_state(state),
                {"stray_in_levels": 1},
                f"in v2 level 16, but the timeout is {state}",
            )
            for state in ("recalled", "released", "quarantined", "claimed", "dispatched")
        ),
        (_late, {"late_in_levels": 1}, "in v2 level 00, due 30 s ago"),
        (lambda w: w.put(w.table[1], late_s=3), {"twice_in_levels": 1}, "once in v2 level 16"),
        (
            lambda w: w.put(w.table[1], delays=V1),
            {"twice_in_levels": 1},
            "once in v1 level 16, once in v2 level 16",
        ),
        (
            lambda w: w.table.pop(1),
            {"rows_gone": 1},
            "batch 1 (handed_over) has 4 rows and should have 5",
        ),
        (lambda w: w.sizes.subtract({1: 1}), {"rows_too_many": 1}, "should have 4"),
        (_gone, {"rows_gone": 1}, "2 rows, of 7 claimed"),
    ],
)
def test_what_does_not_agree_is_found(
    plant: Callable[[World], object], expected: dict[str, int], detail: str
) -> None:
    """Once, with the deciding fact."""
    world = healthy()
    plant(world)
    found = world.verified()
    assert {str(kind): count for kind, count in found.counts.items()} == expected
    assert detail in found.discrepancies[0].detail


def test_only_the_first_of_a_kind_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted; those of other endpoints take no place."""
    monkeypatch.setattr(report, "SHOWN", 2)
    monkeypatch.setattr(verify, "ASKED", 2)
    world = World()
    for n in range(3):
        world.damaged.add(world.hand_over(batch=BatchId(n)).id)
        world.sizes[BatchId(n)] += 1
    other = world.hand_over(endpoint=BILLING, batch=BatchId(9))
    world.legacy = {row.timeout_id for row in world.table}
    world.put(world.table[0])
    found = world.verified()
    assert found.counts == {
        "twice_in_levels": 1,
        "content_changed": 3,
        "rows_gone": 3,
        "in_both_places": 4,
    }
    assert len(found.discrepancies) == 7
    assert (
        "1 more batch with missing or extra rows is counted as rows_gone, but not listed"
    ) in found.not_checked
    found = world.verified(endpoints=frozenset({BILLING}))
    assert (found.counts, found.rows_checked) == ({Discrepancy.IN_BOTH_PLACES: 1}, 1)
    assert found.discrepancies[0].timeout_id == other.timeout_id
    assert [each.endpoint for each in found.endpoints] == [BILLING]


def test_what_was_handed_over_after_it_was_seen_is_not_late() -> None:
    """A daemon catches up, and the ledger is asked after all levels were gone through."""
    world = healthy(1)
    world.put(world.add(timedelta(seconds=-30), handed_over_at=NOW + timedelta(seconds=1)))
    assert counts(world) == {}


# ── what is not missing ─────────────────────────────────────────────────────────────────────────


def test_a_message_between_two_levels_is_not_missing() -> None:
    """The second look meets it."""
    world = healthy()
    message = world.take_out(world.table[0])
    world.on_close[0] = [lambda: world.levels[16].extend(message)]
    assert counts(world) == {}
    assert (world.lines[1].level, world.verdicts()[1]) == (16, "agrees")


@pytest.mark.parametrize(
    "meanwhile",
    [{"state": "recalled"}, {"due_at": NOW + timedelta(seconds=3)}, {"state": "claimed", "id": 9}],
)
def test_what_changes_meanwhile_is_not_missing(meanwhile: dict[str, Any]) -> None:
    """The ledger is asked again before anything is reported."""
    world = healthy()
    row = world.table[0]
    world.take_out(row)

    def later() -> None:
        world.on_close[16] = [lambda: world.change(row, **meanwhile)]

    world.on_close[0] = [later]
    assert "missing_from_levels" not in counts(world)


def test_a_stray_is_asked_about_once_more() -> None:
    """It was claimed when it was read, and handed over meanwhile."""
    world = healthy(1)
    world.change(world.table[0], state="claimed")
    known = world.known

    def handed_over_later(rows: Collection[RowKey]) -> Mapping[RowKey, EvidenceRecord]:
        world.change(world.table[0], state="handed_over")
        return known(rows)

    world.known = handed_over_later  # type: ignore[method-assign]  # the ledger changes behind us
    assert counts(world) == {}
    assert world.verdicts() == {1: "agrees"}


def test_messages_get_time_to_reach_their_levels() -> None:
    """A receipt may be ahead of its messages; what stays staged is missing, and that is told."""
    world = healthy()
    world.take_out(world.table[0])
    world.change(world.table[0], handed_over_at=NOW - timedelta(seconds=1))
    world.staged = 3
    stuck = world.verified()
    assert stuck.counts == {Discrepancy.MISSING: 1}
    assert "3 messages are still in migrator's staging queues" in stuck.discrepancies[0].detail
    assert world.waited[0] == pytest.approx(5.0)
    assert sum(world.waited) < 20

    def arrive() -> None:
        world.staged -= 1
        if world.staged == 0:
            world.put(world.table[0])

    world.on_wait = arrive
    assert counts(world) == {}


_DEEP = "v2 level 16: it holds 4 messages; --max-depth allows more"


@pytest.mark.parametrize(
    ("obstacle", "deepest", "missing", "told"),
    [
        ({"tired": {16}}, 9, 1, ["v2 level 16: came back too often", "whether 5 timeouts"]),
        (
            {"window": 2},
            9,
            1,
            [
                "v2 level 16: it holds more than can be read in the time allowed; 2 were",
                "whether 3",
            ],
        ),
        (
            {"shared": {16}},
            9,
            1,
            ["v2 level 16: something else consumes it", "whether 1 timeout is still there"],
        ),
        ({}, 3, 1, [_DEEP, "whether 5 timeouts"]),
        ({"held_back": {16: 1}}, 9, 1, ["whether 1 timeout is still there"]),
        ({"unacknowledged": {16: 1}}, 9, 1, ["whether 1 timeout is still there"]),
        ({"held_back": {20: 1}}, 9, 2, []),  # they cannot both be there
        (
            {"gap": "only the management API shows this"},
            9,
            0,
            [
                "whether 2 timeouts are still there",
                "messages that a level holds back: only the management API shows this",
            ],
        ),
    ],
)
def test_a_message_may_be_where_nobody_could_look(
    obstacle: dict[str, Any], deepest: int, missing: int, told: list[str]
) -> None:
    """What may be there is not checked; what cannot be there is missing."""
    world = healthy()
    for name, value in obstacle.items():
        setattr(world, name, value)
    world.take_out(world.table[0])
    far = world.add(2 * DAY)
    found = world.verified(deepest=deepest)
    assert found.counts == ({Discrepancy.MISSING: missing} if missing else {})
    if missing == 1:
        assert found.discrepancies[0].timeout_id == far.timeout_id
    assert len(found.not_checked) == len(told)
    assert all(text.startswith(start) for text, start in zip(found.not_checked, told, strict=True))
    assert (16 in world.closed) is (deepest > 4)


def test_what_is_with_us_is_waited_for() -> None:
    """What we held ourselves is told as consumed for a while."""
    world = healthy()
    world.take_out(world.table[0])
    world.unacknowledged = {16: 1}
    world.on_wait = world.unacknowledged.clear
    assert counts(world) == {"missing_from_levels": 1}


def test_a_level_that_does_not_exist_hides_nothing() -> None:
    """Somebody deleted it; of all levels: with what was in them."""
    world = healthy(2)
    world.missing_levels = {3}
    world.take_out(world.table[0])
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 1}
    assert 3 not in {level.level for level in found.levels}
    world.missing_levels = {*range(28)}
    found = world.verified()
    assert (found.counts, found.levels) == ({Discrepancy.MISSING: 2}, ())


def test_a_message_that_comes_down_while_we_look_is_one() -> None:
    """It is seen twice, and its time in the higher level was over."""
    world = World()
    row = world.hand_over(timedelta(seconds=2**16 + 20))
    world.elapsed = 2**16 - 1

    def come_down() -> None:
        world.elapsed += 2
        world.levels[4] = world.take_out(row)

    world.on_close[16] = [come_down]
    found = world.verified()
    assert found.counts == {}
    assert sum(level.ours or 0 for level in found.levels) == 2


def test_a_key_that_nobody_can_read_is_no_delay() -> None:
    """The message is there all the same."""
    world = healthy(1)
    (message,) = world.take_out(world.table[0])
    world.levels[3] = [replace(message, raw_key=b"Shipping")]
    assert counts(world) == {}


def test_what_is_gone_when_asked_again_is_not_reported() -> None:
    """A daemon may have been at work between two answers."""
    world = healthy()
    world.sizes[BatchId(1)] += 1
    world.legacy = {"t1"}
    world.unexplained = 2
    world.ledger_changes = [
        lambda: None,  # destinations
        lambda: None,  # gaps
        lambda: world.sizes.subtract({BatchId(1): 1}),  # gaps again
        lambda: None,  # balances
        lambda: setattr(world, "unexplained", 0),  # balances again
        lambda: None,  # both places
        lambda: world.legacy.clear(),  # both places again
    ]
    assert counts(world) == {}


def test_a_level_is_counted_when_its_messages_are_seen() -> None:
    """The broker's counts are seconds old: after a rollback they tell messages that are gone."""
    world = healthy()
    (level,) = {level for level, messages in world.levels.items() if messages}
    world.put(world.add(timedelta(hours=1)), level=5, app_id="Sales")
    world.untold.update({level: 4, 5: -400, 3: -37})
    world.held_back[2] = 7
    told = {e.level: (e.total, e.ours, e.foreign) for e in world.verified().levels if e.total}
    assert told == {level: (5, 5, 0), 5: (1, 0, 1), 2: (7, 0, 0)}


def test_a_level_that_was_not_seen_whole_has_the_count_of_the_broker() -> None:
    """Never less than was seen of it."""
    world = healthy()
    (level,) = {level for level, messages in world.levels.items() if messages}
    world.window = 3
    for untold, total in ((1, 4), (3, 3)):
        world.untold[level] = untold
        (found,) = (each for each in world.verified().levels if each.level == level)
        assert (found.total, found.ours) == (total, 3)


@pytest.mark.parametrize("is_scan", [True, False])
def test_every_generation_that_exists_is_looked_into(is_scan: bool) -> None:
    """A ledger may have used both; without one of them, nothing is concluded."""
    world = healthy(2)
    world.put(world.add(2 * DAY), delays=V1)
    found = world.verified(is_scan=is_scan)
    assert (found.verdict, found.counts) == (Verdict.BALANCED, {})
    assert sum(each.total or 0 for each in found.levels) == 3
    assert {each.delays for each in found.levels} == {V1, V2}
    for delays, others in ((V1, 1), (V2, 2)):
        found = world.verified(is_scan=is_scan, delays=delays)
        assert (found.counts, sum(each.total or 0 for each in found.levels)) == ({}, others)
        assert any("levels: --delays excludes them" in text for text in found.not_checked)
    assert world.verdicts()[3] == ("not_seen" if is_scan else "not_looked")
    world.take_out(world.table[0])
    kind = Discrepancy.MISSING if is_scan else Discrepancy.TOO_FEW
    assert world.verified(is_scan=is_scan).counts == {kind: 1}


# ── sums of the levels ──────────────────────────────────────────────────────────────────────────


def test_too_few_messages_are_found() -> None:
    """After the broker had time to renew its counts, which lag."""
    world = healthy()
    message = world.take_out(world.table[0])
    found = world.verified(is_scan=False)
    assert found.counts == {Discrepancy.TOO_FEW: 1}
    assert "hold 4 messages" in found.discrepancies[0].detail
    assert sum(world.waited) == pytest.approx(20.0)

    def renew() -> None:
        if world.elapsed >= 23:
            world.levels[16] += message
            message.clear()

    world.on_wait = renew
    assert counts(world, is_scan=False) == {}
    assert sum(world.waited) == pytest.approx(23.0)


def test_what_the_queues_themselves_tell_is_not_waited_for() -> None:
    """The management API tells seconds later what was handed over a moment ago."""
    world = healthy()
    (level,) = {level for level, messages in world.levels.items() if messages}
    world.untold[level] = 3
    found = world.verified(is_scan=False)
    assert found.counts == {}
    assert [each.total for each in found.levels if each.level == level] == [5]
    assert world.waited == []


def test_what_is_with_somebody_by_the_last_answer_counts_once() -> None:
    """It may be ready by now, and be told by its queue, too."""
    world = healthy()
    (level,) = {level for level, messages in world.levels.items() if messages}
    world.take_out(world.table[0])
    world.untold[level] = 1
    world.unacknowledged[level] = 1
    found = world.verified(is_scan=False)
    assert found.counts == {Discrepancy.TOO_FEW: 1}
    assert "hold 4 messages" in found.discrepancies[0].detail


def test_what_need_not_be_there_all_the_time_is_not_demanded() -> None:
    """It is recalled meanwhile, or due before the counts are renewed."""
    world = healthy()
    row = world.table[0]
    world.take_out(row)
    world.add(timedelta(seconds=10))
    world.on_wait = lambda: world.change(row, state="recalled")
    assert counts(world, is_scan=False) == {}


def test_counts_that_nobody_knows_prove_nothing() -> None:
    """Some of the messages may be with a consumer, or held back."""
    world = healthy()
    world.gap = "only the management API shows this"
    assert len(world.verified(is_scan=False).not_checked) == 1  # enough are ready
    world.take_out(world.table[0])
    found = world.verified(is_scan=False)
    assert found.verdict is Verdict.BALANCED
    assert "4 messages are known to be there, and only the management" in found.not_checked[1]


# ── paging, pacing ──────────────────────────────────────────────────────────────────────────────


def test_rows_are_read_at_the_rate_that_was_given() -> None:
    """In pages that are not larger than a second's worth."""
    world = healthy(25)
    world.verified(is_scan=False, rate=10)
    assert world.asked_pages == [10] * 4
    assert world.waited == pytest.approx([1.0, 1.0, 0.5])


def test_rows_that_are_claimed_while_pages_are_read_are_met() -> None:
    """An id is given before its claim commits, and its page may have been read by then."""
    world = healthy(5)
    world.late_rows = [world.table.pop(1)]
    world.change(world.table[0], claimed_at=NOW - DAY)
    assert world.verified(is_scan=False).rows_checked == 5
    assert list(world.lines) == [1, 3, 4, 5, 2]


def test_not_more_than_can_be_remembered_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is told; enough is missing to know that something is wrong."""
    monkeypatch.setattr(verify, "_MOST_UNSEEN", 2)
    world = healthy()
    world.levels.clear()
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 2}
    assert "3 more timeouts in no level" in found.not_checked[0]


# ── where timeouts can be ───────────────────────────────────────────────────────────────────────


def at(level: int, delays: Any = V2) -> Place:
    """Return where a message is whose 24 s are 16 s in level 4, then 8 s in level 3."""
    return Place(level=level, delay_s=24, version=delays)


@pytest.mark.parametrize(
    ("first", "second", "due_in_s", "is_another"),
    [
        (at(4), at(3), 8, False),
        (at(4), at(3), 3, False),
        (at(4), at(3), 13, False),  # the slack is the benefit of the doubt
        (at(4), at(3), 14, True),
        (at(4), at(4), 0, True),
        (at(4), Place(level=3, delay_s=25), 0, True),
        (at(4, V1), at(3), 8, True),
        (at(4, V1), at(3, V1), 8, False),
    ],
)
def test_one_message_may_be_seen_twice(
    first: Place, second: Place, due_in_s: int, is_another: bool
) -> None:
    """In a level, and in a lower one when its time in the first is over; else there are two."""
    due_at = NOW + timedelta(seconds=due_in_s)
    assert is_another_copy(first, second, due_at=due_at, second_seen_at=NOW) is is_another


@pytest.mark.parametrize("delay_s", [1, 6, 24, 1000, 2**20 + 5, 2**28 - 1])
def test_a_message_can_be_where_it_is(delay_s: int) -> None:
    """At every moment of its way, its level is one of those that it can be in; others are not."""
    left_s = delay_s
    for level in (n for n in range(27, -1, -1) if delay_s >> n & 1):
        for due_in_s in (left_s, left_s - 2**level + 1):
            assert can_be_in(level, due_in=timedelta(seconds=due_in_s))
        left_s -= 2**level
    assert not can_be_in(3, due_in=timedelta(seconds=17) + SLACK)
