"""Tests of ``migrator.verify``: what does not agree is found, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.ledger.report import DoubtfulBatch
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import BatchId, Lane, TimeoutId
from migrator.verify import levels, report, verify
from migrator.verify.report import Discrepancy, Verdict
from migrator.verify.rules import Ids, Place, Places
from tests.unit.verify.world import BILLING, DAY, NOW, SALES, MemoryEvidence, World


def healthy(count: int = 5) -> World:
    """Return a world in which everything agrees."""
    world = World()
    for n in range(count):
        world.hand_over(DAY + n * timedelta(hours=1))
    return world


def counts(world: World, **plan: Any) -> dict[str, int]:
    """Return what is wrong in *world*, by kind."""
    return {str(kind): count for kind, count in world.verified(**plan).counts.items()}


# ── what agrees ─────────────────────────────────────────────────────────────────────────────────


def test_what_agrees_is_balanced() -> None:
    """In whatever state rows are; what others sent is none of our business."""
    world = healthy()
    for state in ("claimed", "staging", "quarantined", "released", "recalled", "doubtful"):
        world.add(state=state, handed_over_at=None)
    world.add(timedelta(seconds=-1))  # due, and gone
    world.put(world.add(state="committing", handed_over_at=None))  # a daemon works
    world.put_foreign()
    world.put_foreign({"NServiceBus.RelatedToTimeoutId": "theirs"})
    world.put_foreign({"NServiceBus.RelatedToTimeoutId": b"\xff"})
    found = world.verified()
    assert (found.verdict, found.discrepancies, found.not_checked) == (Verdict.BALANCED, (), ())
    assert (found.rows_checked, found.waiting) == (13, 5)
    assert sum(level.ours or 0 for level in found.levels) == 6
    assert sum(level.foreign or 0 for level in found.levels) == 3
    assert world.closed == dict.fromkeys(range(28), 1)  # no second look, and all has gone back


def test_without_a_scan_the_levels_are_counted() -> None:
    """And it is said that nobody looked at each message."""
    world = healthy()
    found = world.verified(is_scan=False)
    assert found.verdict is Verdict.BALANCED
    assert "only --scan" in found.not_checked[0]
    assert not world.closed
    assert {level.ours for level in found.levels} == {None}
    assert sum(level.total or 0 for level in found.levels) == 5


def test_doubt_is_not_agreement() -> None:
    """Nor is it a discrepancy."""
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


# ── what does not ───────────────────────────────────────────────────────────────────────────────


def test_a_changed_row_is_found() -> None:
    """By the hash that it was claimed with."""
    world = healthy()
    world.change(world.rows[2], is_intact=False)
    found = world.verified()
    assert found.counts == {Discrepancy.CONTENT_CHANGED: 1}
    assert (found.discrepancies[0].timeout_id, found.discrepancies[0].batch) == ("t3", 1)


def test_a_removed_message_is_found() -> None:
    """After a second look, in levels that can hold it only."""
    world = healthy()
    world.take_out(world.rows[0])
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 1}
    assert found.discrepancies[0].timeout_id == "t1"
    assert {level for level, times in world.closed.items() if times == 2} == set(range(16, 28))


def test_a_message_between_two_levels_is_not_missing() -> None:
    """The second look meets it."""
    world = healthy()
    message = world.take_out(world.rows[0])
    world.on_close[0] = [lambda: world.levels[16].extend(message)]
    evidence = MemoryEvidence()
    assert counts(world, evidence=evidence) == {}
    assert evidence.lines[1].level == 16
    assert evidence.verdicts()[1] == "agrees"


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"state": "recalled"},
        {"due_at": NOW + timedelta(seconds=3)},
        {"state": "claimed", "id": 9},
    ],
)
def test_what_changes_meanwhile_is_not_missing(meanwhile: dict[str, Any]) -> None:
    """The ledger is asked again before anything is reported."""
    world = healthy()
    world.take_out(world.rows[0])
    row = world.rows[0]

    def later() -> None:
        world.on_close[16] = [lambda: world.change(row, **meanwhile)]

    world.on_close[0] = [later]
    assert "missing_from_levels" not in counts(world)


def test_what_is_handed_over_while_we_look_is_told() -> None:
    """It may have come into a level that was gone through already."""
    world = healthy()
    world.add(handed_over_at=NOW + timedelta(seconds=1))
    found = world.verified()
    assert found.verdict is Verdict.BALANCED
    assert "1 timeouts that were handed over while" in found.not_checked[0]


def test_messages_get_time_to_reach_their_levels() -> None:
    """A receipt may be ahead of its messages."""
    world = healthy()
    world.take_out(world.rows[0])
    world.change(world.rows[0], handed_over_at=NOW - timedelta(seconds=1))
    world.staged = 3

    def arrive() -> None:
        world.staged = max(0, (world.staged or 0) - 1)
        if world.staged == 0:
            world.put(world.rows[0])

    world.on_wait = arrive
    assert counts(world) == {}
    assert world.waited[0] == pytest.approx(5.0)


def test_what_stays_staged_is_missing_from_the_levels() -> None:
    """And where it may be is told."""
    world = healthy()
    world.take_out(world.rows[0])
    world.staged = 1
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 1}
    assert "1 messages are still in migrator's staging queues" in found.discrepancies[0].detail
    assert sum(world.waited) < 20


@pytest.mark.parametrize(("tired", "window"), [({16}, 1000), (set(), 2)])
def test_a_level_that_could_not_be_read_hides(tired: set[int], window: int) -> None:
    """What may be in it is not checked; what cannot be in it is missing."""
    world = healthy()
    world.tired, world.window = tired, window
    world.take_out(world.rows[0])
    far = world.add(2 * DAY)
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 1}
    assert found.discrepancies[0].timeout_id == far.timeout_id
    assert any(text.startswith("v2 level 16: ") for text in found.not_checked)
    assert any("timeouts are still there" in text for text in found.not_checked)


def test_a_level_that_is_too_deep_is_not_looked_into() -> None:
    """Too many messages would have to be held."""
    world = healthy()
    found = world.verified(deepest=4)
    assert found.verdict is Verdict.BALANCED
    assert "v2 level 16: it holds 5 messages; --deepest allows more" in found.not_checked
    assert 16 not in world.closed


def test_what_a_level_holds_back_may_be_what_is_not_seen() -> None:
    """But not more than it holds back."""
    world = healthy()
    world.take_out(world.rows[0])
    world.held = {20: 1}
    found = world.verified()
    assert found.verdict is Verdict.BALANCED
    assert "whether 1 timeouts are still there" in found.not_checked[0]
    world.take_out(world.rows[1])
    assert counts(world) == {"missing_from_levels": 2}


def test_what_levels_hold_back_is_not_always_known() -> None:
    """Then it is said."""
    world = healthy()
    world.gap = "only the management API tells"
    assert "holds back: only the management API" in world.verified().not_checked[0]
    world.take_out(world.rows[0])
    found = world.verified()
    assert found.verdict is Verdict.BALANCED
    assert "whether 1 timeouts are still there" in found.not_checked[0]


def test_a_level_that_does_not_exist_is_left_out() -> None:
    """The ladder says so, and nothing is in it."""
    world = healthy()
    world.missing_levels = {3}
    world.take_out(world.rows[0])  # a second look leaves it out, too
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 1}
    assert 3 not in {level.level for level in found.levels}


def test_a_duplicate_is_found() -> None:
    """With the same key in the same level, or with another one."""
    world = healthy()
    world.put(world.rows[0])
    world.put(world.rows[1], late_s=3)
    assert counts(world) == {"twice_in_levels": 2}


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


def test_another_body_is_found() -> None:
    """It is there, so it is not missing as well."""
    world = healthy()
    world.take_out(world.rows[0])
    world.put(world.rows[0], body=b"another")
    assert counts(world) == {"different_in_levels": 1}


@pytest.mark.parametrize("state", ["recalled", "released", "quarantined", "claimed", "dispatched"])
def test_a_stray_is_found(state: str) -> None:
    """Nothing of such a timeout may be in a level."""
    world = healthy()
    world.change(world.rows[0], state=state)
    found = world.verified()
    assert found.counts == {Discrepancy.STRAY: 1}
    assert (
        found.discrepancies[0].detail == f"a message is in v2 level 16, but the timeout is {state}"
    )


def test_a_late_message_is_found() -> None:
    """Later than anybody who looks could have made it."""
    world = World()
    world.put(world.add(timedelta(seconds=-30)))
    world.put(world.add(timedelta(seconds=-20)))
    found = world.verified()
    assert found.counts == {Discrepancy.LATE: 1}
    assert found.discrepancies[0].detail == "in v2 level 00, due 30 s ago"


def test_a_deleted_row_is_found() -> None:
    """By the size of its batch; its message is nobody's."""
    world = healthy()
    del world.rows[1]
    found = world.verified()
    assert found.counts == {Discrepancy.ROWS_GONE: 1}
    assert "has 4 rows and should have 5" in found.discrepancies[0].detail
    assert sum(level.foreign or 0 for level in found.levels) == 1


def test_an_added_row_is_found() -> None:
    """Nobody claimed it."""
    world = healthy()
    world.sizes[BatchId(1)] -= 1
    assert counts(world) == {"rows_too_many": 1}


def test_sums_that_no_batch_explains_are_found() -> None:
    """Whatever the batches say of themselves."""
    world = healthy()
    balances = world.balances
    world.balances = lambda: [  # type: ignore[method-assign]  # a ledger that contradicts itself
        replace(each, claimed=each.claimed + 2) for each in balances()
    ]
    found = world.verified()
    assert found.counts == {Discrepancy.ROWS_GONE: 1}
    assert found.discrepancies[0].detail == "2 rows, of 7 that were claimed"


def test_a_timeout_in_both_places_is_found() -> None:
    """When it is open in the ledger; a recalled one belongs into its table."""
    world = healthy()
    recalled = world.add(state="recalled")
    world.legacy = {"t1", recalled.timeout_id}
    found = world.verified()
    assert found.counts == {Discrepancy.IN_BOTH_PLACES: 1}
    assert found.discrepancies[0].timeout_id == "t1"


def test_what_is_gone_when_asked_again_is_not_reported() -> None:
    """A daemon may have been at work between two answers."""
    world = healthy()
    world.sizes[BatchId(1)] += 1
    world.legacy = {"t1"}
    world.ledger_changes = [
        lambda: None,  # destinations
        lambda: None,  # gaps
        lambda: world.sizes.subtract({BatchId(1): 1}),  # gaps again
        lambda: None,  # balances
        lambda: None,  # both places
        lambda: world.legacy.clear(),  # both places again
    ]
    assert counts(world) == {}


def test_only_the_first_of_a_kind_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted."""
    world = healthy()
    for row in list(world.rows):
        world.change(row, is_intact=False)
    monkeypatch.setattr(report, "SHOWN", 2)
    found = world.verified()
    assert found.counts == {Discrepancy.CONTENT_CHANGED: 5}
    assert len(found.discrepancies) == 2


def test_other_endpoints_are_left_out() -> None:
    """Their messages are known, and not judged."""
    world = healthy()
    other = world.hand_over(endpoint=BILLING, batch=BatchId(2))
    world.put(other)
    world.change(other, is_intact=False)
    found = world.verified(endpoints=frozenset({SALES}))
    assert (found.verdict, found.rows_checked) == (Verdict.BALANCED, 5)
    assert [each.endpoint for each in found.endpoints] == [SALES]
    assert counts(world) == {"twice_in_levels": 1, "content_changed": 1}


def test_only_the_mark_tells_whose_a_message_is() -> None:
    """A delayed retry has the id of the timeout it once was, and is somebody else's."""
    world = healthy(2)
    gone = world.add(timedelta(seconds=-60))
    for mark in ("", "migrator/zz/1.1.3", "migrator/a1/1.1.receipt", "Sales"):
        world.put(gone, level=12, mark=mark)
    world.put(gone, level=12, mark="migrator/a1/7.1.3")  # a batch of which nothing is known
    found = world.verified()
    assert (found.verdict, found.counts) == (Verdict.BALANCED, {})
    assert sum(level.foreign or 0 for level in found.levels) == 5


def test_a_mark_with_another_id_is_told() -> None:
    """And does not stand for the row whose mark it is: that one's message is missed."""
    world = healthy(2)
    world.take_out(world.rows[0])
    other = replace(world.rows[0], timeout_id=TimeoutId("t77"))
    world.put(other)
    found = world.verified()
    assert found.counts == {Discrepancy.DIFFERENT: 1, Discrepancy.MISSING: 1}
    assert "bears its mark, but is timeout t77" in found.discrepancies[0].detail
    assert {each.timeout_id for each in found.discrepancies} == {"t1"}


def test_a_row_claimed_again_is_not_the_one_before() -> None:
    """A message of the first batch is a stray, though the second is handed over, too."""
    world = healthy(1)
    before = world.add(state="recalled", batch=BatchId(2), timeout_id=TimeoutId("t1"))
    world.put(before)
    found = world.verified()
    assert found.counts == {Discrepancy.STRAY: 1}
    assert found.discrepancies[0].batch == 2


# ── other generations, other consumers ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_scan", [True, False])
def test_every_generation_that_exists_is_looked_into(is_scan: bool) -> None:
    """A ledger may have used both; without one of them, nothing is concluded."""
    world = healthy(2)
    old = world.add(2 * DAY)
    world.put(old, delays=DelaysVersion.V1)
    found = world.verified(is_scan=is_scan)
    assert (found.verdict, found.counts) == (Verdict.BALANCED, {})
    assert sum(each.total or 0 for each in found.levels) == 3
    assert {each.delays for each in found.levels} == {*DelaysVersion}
    evidence = MemoryEvidence()
    for delays, others in ((DelaysVersion.V1, 1), (DelaysVersion.V2, 2)):
        evidence.lines.clear()
        found = world.verified(is_scan=is_scan, delays=delays, evidence=evidence)
        assert (found.counts, sum(each.total or 0 for each in found.levels)) == ({}, others)
        assert any("levels: --delays leaves them out" in text for text in found.not_checked)
    assert evidence.verdicts()[3] == ("not_seen" if is_scan else "not_looked")
    world.take_out(world.rows[0])
    kind = Discrepancy.MISSING if is_scan else Discrepancy.TOO_FEW
    assert world.verified(is_scan=is_scan).counts == {kind: 1}


def test_a_timeout_in_two_generations_is_there_twice() -> None:
    """It would be delivered from each."""
    world = healthy(2)
    world.put(world.rows[1], delays=DelaysVersion.V1)
    evidence = MemoryEvidence()
    found = world.verified(evidence=evidence)
    assert found.counts == {Discrepancy.TWICE: 1}
    assert found.discrepancies[0].detail == "once in v1 level 16, once in v2 level 16"
    assert [evidence.lines[n].delays for n in (1, 2)] == [DelaysVersion.V2] * 2


def test_without_any_levels_everything_is_missing() -> None:
    """Somebody deleted the delays, and what was in them."""
    world = healthy(2)
    world.missing_levels = {*range(28)}
    found = world.verified()
    assert (found.counts, found.levels) == ({Discrepancy.MISSING: 2}, ())


def test_a_level_that_somebody_else_consumes_hides() -> None:
    """Nobody knows what they hold."""
    world = healthy()
    world.shared = {16}
    world.take_out(world.rows[0])
    far = world.add(2 * DAY)
    found = world.verified()
    assert [each.timeout_id for each in found.discrepancies] == [far.timeout_id]
    assert "v2 level 16: somebody else consumes it" in found.not_checked[0]
    assert any("1 timeouts are still there" in text for text in found.not_checked)


def test_what_is_with_somebody_may_be_what_is_not_seen() -> None:
    """Also of one who does not consume, but got a message; our own is told for a while, too."""
    world = healthy()
    world.take_out(world.rows[0])
    world.unacknowledged = {16: 1}
    assert counts(world) == {}
    assert sum(world.waited) == pytest.approx(8.0)

    def renew() -> None:
        world.unacknowledged = {}

    world.on_wait = renew
    assert counts(world) == {"missing_from_levels": 1}


def test_a_slow_ledger_does_not_lose_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is asked about what was seen, the broker gets signs of life."""
    monkeypatch.setattr(levels, "CHUNK", 2)
    world = healthy(9)
    assert counts(world) == {}
    before = world.signs_of_life
    world.slowness = 1.5
    assert counts(world) == {}
    assert world.signs_of_life == 2 * before + 2


# ── sums of the levels ──────────────────────────────────────────────────────────────────────────


def test_too_few_messages_are_found() -> None:
    """After the broker had time to renew its counts."""
    world = healthy()
    world.take_out(world.rows[0])
    found = world.verified(is_scan=False)
    assert found.counts == {Discrepancy.TOO_FEW: 1}
    assert "hold 4 messages" in found.discrepancies[0].detail
    assert sum(world.waited) == pytest.approx(8.0)


def test_counts_that_lag_are_waited_for() -> None:
    """What was handed over a moment ago is not in them yet."""
    world = healthy()
    message = world.take_out(world.rows[0])

    def renew() -> None:
        if world.elapsed >= 3:
            world.levels[16] += message
            message.clear()

    world.on_wait = renew
    assert counts(world, is_scan=False) == {}
    assert sum(world.waited) == pytest.approx(3.0)


def test_what_is_recalled_meanwhile_is_not_demanded() -> None:
    """The ledger is asked again, too."""
    world = healthy()
    world.take_out(world.rows[0])
    row = world.rows[0]

    def recall() -> None:
        if row in world.rows:
            world.change(row, state="recalled")

    world.on_wait = recall
    assert counts(world, is_scan=False) == {}


def test_what_is_due_in_a_moment_is_not_demanded() -> None:
    """It may leave while counts are renewed."""
    world = World()
    world.add(timedelta(seconds=10))
    assert counts(world, is_scan=False) == {}


def test_counts_that_nobody_knows_prove_nothing() -> None:
    """Some of the messages may be with a consumer, or held back."""
    world = healthy()
    world.gap = "only the management API tells"
    assert len(world.verified(is_scan=False).not_checked) == 1  # enough are ready
    world.take_out(world.rows[0])
    found = world.verified(is_scan=False)
    assert found.verdict is Verdict.BALANCED
    assert "4 messages are known to be there, and only the management" in found.not_checked[1]


# ── paging, pacing, evidence ────────────────────────────────────────────────────────────────────


def test_rows_are_read_at_the_rate_that_was_given() -> None:
    """In pages that are not larger than a second's worth."""
    world = healthy(25)
    world.verified(is_scan=False, rate=10)
    assert world.asked_pages == [10] * 4
    assert world.waited == pytest.approx([1.0, 1.0, 0.5])


def test_evidence_has_a_line_for_every_timeout() -> None:
    """Also for those of which something was found out at the end."""
    world = healthy(4)
    world.add(state="quarantined", reason="no-destination", handed_over_at=None)
    world.add(-DAY)
    world.add(handed_over_at=NOW + timedelta(seconds=1))
    world.take_out(world.rows[0])
    world.change(world.rows[1], is_intact=False)
    world.legacy = {"t3"}
    world.put(world.rows[3])
    evidence = MemoryEvidence()
    world.verified(evidence=evidence)
    assert evidence.verdicts() == {
        1: "missing_from_levels",
        2: "content_changed",
        3: "in_both_places",
        4: "twice_in_levels",
        5: "agrees",
        6: "left",
        7: "not_seen",
    }
    assert evidence.lines[4].level == 16
    assert sorted(evidence.amended) == [1, 3]


def test_evidence_says_when_nobody_looked() -> None:
    """Without a scan, nothing is said of the levels."""
    world = healthy(1)
    evidence = MemoryEvidence()
    world.verified(evidence=evidence, is_scan=False)
    assert evidence.verdicts() == {1: "not_looked"}
    assert not evidence.amended


def test_rows_that_are_claimed_while_pages_are_read_are_met() -> None:
    """An id is given before its claim commits, and its page may have been read by then."""
    world = healthy(4)
    world.late_rows = [world.rows.pop(1)]
    evidence = MemoryEvidence()
    found = world.verified(evidence=evidence, is_scan=False)
    assert found.rows_checked == 4
    assert list(evidence.lines) == [1, 3, 4, 2]
    assert sorted(world.hashed) == [1, 2, 3, 4]


def test_not_more_than_can_be_remembered_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is told; enough is missing to know that something is wrong."""
    monkeypatch.setattr(verify, "_MOST_UNSEEN", 2)
    world = healthy()
    world.levels.clear()
    found = world.verified()
    assert found.counts == {Discrepancy.MISSING: 2}
    assert "3 timeouts more were in no level" in found.not_checked[0]


# ── where timeouts were seen ────────────────────────────────────────────────────────────────────


def test_places_are_remembered() -> None:
    """Near and far ids, the shortest and the longest delay; nothing else."""
    places = Places()
    given = {
        1: Place(level=0, delay_s=0),
        1023: Place(level=27, delay_s=2**28 - 1),
        1024: Place(level=5, delay_s=40),
        2**62: Place(level=16, delay_s=65_536),
        7: Place(level=27, delay_s=2**28 - 1, delays=DelaysVersion.V1),
    }
    for row, place in given.items():
        places.add(row, place)
    assert {row: places[row] for row in given} == given
    assert {places[row] for row in (0, 2, 1025, 2**40)} == {None}


def test_ids_are_remembered() -> None:
    """Near and far ones; nothing else."""
    ids = Ids()
    given = {1, 8, 8191, 8192, 2**62}
    for row in given:
        ids.add(row)
    assert {row for row in (*given, 0, 2, 9, 8190, 8193, 2**62 + 1) if row in ids} == given


def test_times_to_wait_are_long_enough() -> None:
    """The broker renews its counts every five seconds."""
    assert timedelta(seconds=5) < levels._ROUTED


def test_a_key_that_nobody_can_read_is_no_delay() -> None:
    """The message is there all the same; published once more, it is another one."""
    world = healthy(1)
    (message,) = world.take_out(world.rows[0])
    world.levels[3] = [replace(message, routing_key="Shipping")]
    assert counts(world) == {}
    world.put(world.rows[0])
    assert counts(world) == {"twice_in_levels": 1}


def test_more_than_are_named_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be very many; those of other endpoints take no place."""
    monkeypatch.setattr(verify, "ASKED", 2)
    world = World()
    for n in range(3):
        world.hand_over(batch=BatchId(n))
        world.sizes[BatchId(n)] += 1
    world.hand_over(endpoint=BILLING, batch=BatchId(9))
    world.legacy = {row.timeout_id for row in world.rows}
    found = world.verified()
    assert found.counts == {Discrepancy.ROWS_GONE: 3, Discrepancy.IN_BOTH_PLACES: 4}
    assert (
        "1 batches with other rows than they should have more are counted as rows_gone, and not "
        "named"
    ) in found.not_checked
    found = world.verified(endpoints=frozenset({BILLING}))
    assert found.counts == {Discrepancy.IN_BOTH_PLACES: 1}
    assert found.discrepancies[0].timeout_id == "t4"
