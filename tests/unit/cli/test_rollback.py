"""Tests of ``migrator.cli.rollback``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.cli import output, rollback
from migrator.delays.walk import WalkProgress
from migrator.handover.lane_recovery import LaneRecovery
from migrator.ledger.leases import SqlLeases
from migrator.nservicebus.timeouts import Lane
from migrator.recall.recall import RecallReport
from migrator.recall.rules import RecallForecast, RecallOutcome
from tests.unit.cli.conftest import Program

ROWS = "SELECT * FROM Sales_TimeoutData ORDER BY Id"


@pytest.fixture
def claimed(program: Program) -> Program:
    """The program, with 10 of 20 rows claimed by a run whose owner is gone."""
    program.seeded()
    program.claimed(10)
    return program


LANES = (
    "INSERT INTO migrator_lease (name, owner, token, until, doing, renewed_at) VALUES"
    " ('lane.5', 'else/1/2/3/4', 1, '2099-01-01 00:00:00.000000', '',"
    " '2026-01-01 00:00:00.000000'),"
    " ('lane.1000', NULL, 1, '2026-01-01 00:00:00.000000', '', '2026-01-01 00:00:00.000000')"
)
"""One on which somebody else works, and one of a dispatcher that is gone."""


@pytest.mark.parametrize(
    "batch",
    [
        "state = 'claimed'",
        "state = 'staging', attempt = 1",
        "lane = 1000, mode = 'dispatch', state = 'claimed'",
    ],
    ids=["claimed", "staged and not committed", "claimed by a dispatcher"],
)
def test_rows_go_back_byte_for_byte(program: Program, batch: str) -> None:
    """As if they had never left, and only with --yes; the audit trail knows."""
    program.seeded()
    before = program.rows(ROWS)
    program.claimed(10)
    program.change(f"UPDATE migrator_batch SET {batch}", LANES.replace("lane.5", "lane.6"))
    assert "add --yes" in program("rollback", codes=[2]).err
    assert len(program.rows(ROWS)) == 10
    ended = program("rollback", "--yes")
    assert "not handed over: 10 rows of 1 batch back in their tables" in ended.err
    assert ended.out == ""
    assert program.rows(ROWS) == before
    assert ("rolled_back",) in program.rows("SELECT kind FROM migrator_event")
    assert program.rows("SELECT name FROM migrator_lease WHERE owner <> ''") == [("lane.6",)]


def test_a_lane_that_was_taken_meanwhile_is_its_new_owners(
    claimed: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when it was looked for."""
    claimed.change("UPDATE migrator_batch SET lane = 5", LANES)
    monkeypatch.setattr(SqlLeases, "abandoned_lanes", lambda _: [Lane(5)])
    assert "lane 5 was left alone" in claimed("rollback", "--yes", codes=[5]).err
    assert len(claimed.rows(ROWS)) == 10


def test_only_what_is_meant_goes_back(claimed: Program) -> None:
    """One endpoint with its quarantine, or one run without: its rows tell no run."""
    claimed("seed", "--yes", "--endpoint", "Billing", "--count", "1")
    others = (["--run", "9"], ["--endpoint", "Billing"])
    for other in others:
        claimed("rollback", *other, "--yes")
    assert len(claimed.rows(ROWS)) == 10
    claimed.change(
        "UPDATE migrator_batch SET state = 'handed_over'",
        "UPDATE migrator_timeout SET state = 'quarantined', reason = 'unroutable'"
        " WHERE row_index < 3",
    )
    for other in (*others, ["--run", "1"]):
        claimed("rollback", *other, "--keep-handed-over", "--yes")
    assert len(claimed.rows(ROWS)) == 10
    claimed("rollback", "--endpoint", "Sales", "--keep-handed-over", "--yes")
    assert len(claimed.rows(ROWS)) == 13


def test_several_endpoints_go_back_at_once(claimed: Program) -> None:
    """What is claimed, in quarantine and handed over, of each that is named and of no other."""
    for name in ("Billing", "Shipping"):
        claimed("seed", "--yes", "--endpoint", name, "--count", "4", "--seed", "2")
        claimed.claimed(4, name)
    claimed.claimed(3)
    claimed.change(
        "UPDATE migrator_batch SET state = 'handed_over' WHERE id IN (2, 3, 4)",
        "UPDATE migrator_timeout SET state = 'quarantined', reason = 'unroutable'"
        " WHERE batch_id <> 1 AND row_index = 0",
        *(
            "INSERT INTO migrator_held_destination (source, destination, endpoint, reason, detail,"
            f" tries, since, next_try_at) VALUES ('{name}_TimeoutData', 'Gone', '{name}',"
            " 'destination-unknown', '-', 1, '2026-01-01', '2026-01-01')"
            for name in ("Billing", "Shipping")
        ),
    )
    chosen = ("--endpoint", "Billing", "--endpoint", "Sales", "--endpoint", "Billing")
    told = claimed("rollback", *chosen, "--dry-run", "--json").document
    assert (told["batches"], told["rows"], told["quarantined"]) == ([1], 10, 2)
    by_ledger = told["handed_over"]["expected"]
    assert sum(by_ledger[name] for name in ("in_levels", "too_near", "left")) == 5
    done = claimed("rollback", *chosen, "--keep-handed-over", "--yes", "--json").document
    assert (done["batches"], done["rows"], done["quarantined"]) == ([1], 10, 2)
    aside = "SELECT endpoint FROM migrator_timeout WHERE state = 'quarantined'"
    assert claimed.rows(aside) == [("Shipping",)]
    assert claimed.rows("SELECT endpoint FROM migrator_held_destination") == [("Shipping",)]


def test_a_dry_run_only_tells(claimed: Program) -> None:
    """Quarantined rows are counted, too."""
    claimed.change(
        "UPDATE migrator_timeout SET state = 'quarantined', reason = 'unroutable'"
        " WHERE row_index < 3"
    )
    document = claimed("rollback", "--dry-run", "--json").document
    expected = {
        "schema": "migrator/rollback/1",
        "dry_run": True,
        "rows": 10,
        "batches": [1],
        "quarantined": 3,
        "left_in_quarantine": None,
        "stopped_by": None,
        **{key: [] for key in ("untouched", "stuck", "doubtful", "busy")},
    }
    assert {key: document[key] for key in expected} == expected
    assert claimed("rollback", "--dry-run", "--endpoint", "Sales", "--json").document == document
    assert len(claimed.rows(ROWS)) == 10


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("state = 'committing'", "batches 1 may have reached the broker"),
        ("state = 'doubtful'", "batches 1 are doubtful; decide about them first"),
        (
            "lane = 1000, mode = 'dispatch', state = 'publishing'",
            "batches 1 were being sent by a dispatcher, and only a dispatcher settles them",
        ),
        ("mode = 'direct', state = 'publishing'", "batches 1 may have reached the broker"),
        ("lane = 5", ""),
    ],
)
def test_what_is_left_alone_is_told(claimed: Program, changes: str, said: str) -> None:
    """Lanes at work, and batches of which the broker or a person knows more; exit code 5."""
    claimed.change(f"UPDATE migrator_batch SET {changes}", LANES)
    assert said in claimed("rollback", "--dry-run").err
    ended = claimed("rollback", "--yes", codes=[5])
    assert said in ended.err
    assert "lane 5 was left alone: else/1/2/3/4 works on it" in ended.err
    assert len(claimed.rows(ROWS)) == 10


@pytest.mark.parametrize(("left", "said"), [(290, "290 copies"), (1, "1 copy"), (0, "")])
def test_copies_that_stay_in_staging_queues_are_named(
    claimed: Program, monkeypatch: pytest.MonkeyPatch, left: int, said: str
) -> None:
    """With how many there are; where none are left, nothing is said of them."""
    claimed.change("UPDATE migrator_batch SET state = 'staging', attempt = 1")
    monkeypatch.setattr(LaneRecovery, "recover", lambda _recovery, _staged, _published: left)
    err = claimed("--broker-url", "amqp://guest@127.0.0.1:1/", "rollback", "--yes").err
    told = [line for line in err.splitlines() if "staging" in line]
    where = "of rows left in migrator's staging queues; nothing sends them"
    assert [line.partition(",")[0] for line in told] == [f"{said} {where}"] * bool(left)


def test_what_was_being_published_is_foretold(claimed: Program) -> None:
    """Where a broker is named, and only for the delays into which it was published.

    When it cannot be published, it stays as it is, and is told among what is left alone.
    """
    claimed.change(
        "UPDATE migrator_batch SET mode = 'direct', state = 'publishing', attempt = 1",
        "UPDATE migrator_timeout SET due = '2026-01-01 00:00:00.000000' WHERE row_index < 3",
    )
    broker = ("--broker-url", "amqp://guest:guest@127.0.0.1:1/")
    dry = ("rollback", "--dry-run", "--json")
    keys = ("untouched", "republished", "republished_due")

    def told(*args: str, codes: Sequence[int] = (0,)) -> tuple[Any, ...]:
        document = claimed(*args, codes=codes).document
        return tuple(document[key] for key in keys)

    assert told(*dry) == ([1], [], 0)
    assert told(*broker, *dry, "--only-handed-over") == ([], [1], 3)
    assert told(*broker, "rollback", "--yes", "--json", codes=[4]) == ([1], [], 0)
    assert told(*broker, *dry, "--delays", "v1") == ([], [1], 3)
    claimed.change("""UPDATE migrator_run SET options = '{"delays": "v2"}'""")
    assert told(*broker, *dry, "--delays", "v1") == ([1], [], 0)
    assert told(*broker, *dry) == ([], [1], 3)
    claimed.change("UPDATE migrator_batch SET mode = 'staged'")  # with no message to stage
    assert told(*broker, *dry) == ([], [1], 3)
    claimed.change(LANES, "UPDATE migrator_batch SET lane = 5")
    assert told(*broker, *dry) == ([], [], 0)


HANDED_OVER = (
    "UPDATE migrator_batch SET state = 'handed_over', first_due = '2098-01-01 00:00:00.000000',"
    " last_due = '2099-01-01 00:00:00.000000'",
    "UPDATE migrator_timeout SET due = '2098-06-01 00:00:00.000000'",
)


def test_what_was_handed_over_is_foretold_without_the_broker(claimed: Program) -> None:
    """By the ledger: how many, and until when; only that half is out of reach."""
    claimed.change(*HANDED_OVER)
    ended = claimed("rollback", "--dry-run")
    assert "according to the ledger: 10 in the levels, 0 due too soon" in ended.err
    expected = claimed("rollback", "--dry-run", "--json").document["handed_over"]["expected"]
    assert expected["in_levels"] == 10
    assert expected["possible_until"].startswith("2097-12-31T23:59")
    kept = claimed("rollback", "--dry-run", "--keep-handed-over", "--json").document
    assert kept["handed_over"] is None
    assert "broker.url" in claimed("rollback", "--yes", codes=[2]).err
    assert claimed.rows("SELECT kind FROM migrator_event") == []
    claimed("rollback", "--keep-handed-over", "--yes")
    claimed("rollback", "--run", "9", "--yes")


def test_the_first_half_is_told_when_the_second_fails(claimed: Program) -> None:
    """In the one document, with what stopped it; the exit code is that of the failure."""
    claimed.change(*HANDED_OVER)
    broker = ("--broker-url", "amqp://guest:guest@127.0.0.1:1/")
    claimed.change(
        "UPDATE migrator_lease SET owner = 'else/1/2/3/4', until = '2099-01-01'"
        " WHERE name = 'lane.0'"
    )
    ended = claimed(*broker, "rollback", "--yes", "--json", codes=[3])
    assert "processes work on lane 0" in ended.document["stopped_by"]
    assert "processes work on lane 0" in ended.err
    claimed.change("UPDATE migrator_lease SET owner = NULL")
    ended = claimed(*broker, "rollback", "--yes", "--json", codes=[4])
    assert "cannot be reached" in ended.document["stopped_by"]
    assert ended.document["handed_over"]["expected"]["in_levels"] == 10


def test_what_was_held_is_forgotten_with_the_whole(claimed: Program) -> None:
    """Of the endpoints that are meant, once nobody works; a run's rollback leaves it."""
    held = "SELECT source FROM migrator_held_destination ORDER BY source"
    claimed.change(
        *(
            "INSERT INTO migrator_held_destination (source, destination, endpoint, reason, detail,"
            f" tries, since, next_try_at) VALUES ('{source}', 'Gone', 'Sales',"
            " 'destination-unknown', '-', 1, '2026-01-01', '2026-01-01')"
            for source in ("other", "Sales_TimeoutData")
        )
    )
    sources = claimed.rows(held)
    claimed("rollback", "--run", "1", "--yes")
    assert claimed.rows(held) == sources
    claimed("rollback", "--endpoint", "Sales", "--yes")
    assert claimed.rows(held) == [("other",)]
    claimed("rollback", "--yes")
    assert claimed.rows(held) == []


def test_a_part_of_what_was_handed_over_leaves_the_rest_alone(claimed: Program) -> None:
    """A destination or due times mean that part; claimed rows stay, and lanes are not looked at."""
    for options in (["--only-handed-over"], ["--destination", "X"], ["--due-until", "2030-01-01"]):
        document = claimed("rollback", *options, "--dry-run", "--json").document
        assert (document["rows"], document["batches"], document["quarantined"]) == (0, [], 0)
        assert document["handed_over"]["expected"]["in_levels"] == 0
        assert (
            "nothing would be left to do"
            in claimed("rollback", "--dry-run", "--keep-handed-over", *options, codes=[2]).err
        )
    assert claimed("rollback", "--only-handed-over", "--yes").err.startswith(
        "according to the ledger: 0 "
    )
    assert len(claimed.rows(ROWS)) == 10
    claimed.change(*HANDED_OVER)
    found = claimed("rollback", "--due-from", "2098-06-01", "--dry-run", "--json").document
    assert found["handed_over"]["expected"]["in_levels"] == 10
    found = claimed("rollback", "--due-from", "2098-06-02", "--dry-run", "--json").document
    assert found["handed_over"]["expected"]["in_levels"] == 0


@pytest.mark.parametrize(
    ("outcomes", "more", "is_whole"),
    [
        ({RecallOutcome.RESTORED: 9, RecallOutcome.LEFTOVER: 1}, {}, True),
        ({RecallOutcome.FOREIGN: 9}, {}, True),
        ({RecallOutcome.RESTORED: 9}, {"not_found": 3}, False),
        ({RecallOutcome.RESTORED: 5, RecallOutcome.TOO_NEAR: 1}, {}, False),
        ({RecallOutcome.RESTORED: 5}, {"unfinished": [7]}, False),
    ],
)
def test_what_stayed_is_said_with_its_reason(
    outcomes: dict[RecallOutcome, int], more: dict[str, Any], is_whole: bool
) -> None:
    """Each kind on a line of its own; what is gone, and what is of others, is no reason."""
    expected = RecallForecast(
        in_levels=9,
        too_near=1,
        left=4,
        possible_until=datetime(2026, 3, 10, 9, 30, tzinfo=UTC),
        may_find=True,
    )
    report = RecallReport(expected=expected, outcomes=outcomes, **more)
    assert report.is_whole is is_whole
    said = "\n".join(rollback.recalled_lines(report))
    for text, is_said in (
        ("according to the ledger: 9 in the levels, 1 due too soon", True),
        ("\nall of them can be recalled until 2026-03-10 09:30:00 UTC", True),
        (f"\nback in their tables: {outcomes.get(RecallOutcome.RESTORED, 0)} rows", True),
        ("\n1 message removed: copies of rows that were back", RecallOutcome.LEFTOVER in outcomes),
        ("\n1 message left with the broker: due too soon", RecallOutcome.TOO_NEAR in outcomes),
        ("\nlevel 07 was not read to its end", "unfinished" in more),
        ("\nnot found: 3 messages that the ledger expects", "not_found" in more),
    ):
        assert (text in said) is is_said


def test_a_line_now_and_then_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every five seconds where there is no terminal."""
    now_s = 100.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(output, "time", clock)
    monkeypatch.setattr(rollback, "time", clock)
    with rollback.watched() as progress:
        for step in range(1, 12):
            now_s += 1
            progress(WalkProgress(level=20 - step, seen=300 * step, restored=100 * step))
    assert capsys.readouterr().err.splitlines() == [
        "recalling: level 15, 1 500 messages seen, 500 rows restored, 300 messages/s",
        "recalling: level 10, 3 000 messages seen, 1 000 rows restored, 300 messages/s",
    ]


def test_terms_are_durations(program: Program) -> None:
    """It says which option is none, before anything is opened."""
    assert "--max-hold '20'" in program("rollback", "--max-hold", "20", "--dry-run", codes=[2]).err
    assert "--max-hold '0s'" in program("rollback", "--max-hold", "0s", "--dry-run", codes=[2]).err
    assert "--margin '1'" in program("rollback", "--margin", "1", "--dry-run", codes=[2]).err
