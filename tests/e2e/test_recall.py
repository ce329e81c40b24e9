"""Bringing handed-over timeouts back: ours come back byte for byte, others notice nothing."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, address, delay_s
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import staging_name
from tests.e2e.arrivals import Receiver
from tests.e2e.rig import Rig
from tests.e2e.rows import chance, row
from tests.reference.captured import entering

PART = ("rollback", "--only-handed-over")
RETRY = b'{"n": 0}'
"""As long as the bodies of our first ten rows."""


def ours(rig: Rig, count: int) -> None:
    """Store *count* timeouts, due from hours to months."""
    rig.insert(row(timedelta(hours=1 + 2 * n), body=b'{"n": %d}' % n) for n in range(count))


def foreign(rig: Rig, delays_s: Sequence[float]) -> dict[str, datetime]:
    """Send delayed messages of another endpoint into the levels; return when each is due.

    They have the headers of real ones, and look like delayed retries of timeouts that have arrived:
    with ids of rows that the ledger has handed over, and bodies as long as theirs.
    """
    due, real = {}, entering()
    ids = rig.first_handed_over(10)
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, after_s in enumerate(delays_s):
            related = {"NServiceBus.RelatedToTimeoutId": ids[number % len(ids)]} if ids else {}
            message_id, now = str(uuid.uuid4()), datetime.now(UTC)
            headers = {**real[number % len(real)].headers, "NServiceBus.MessageId": message_id}
            headers["NServiceBus.Retries"] = "1"
            due[message_id] = now + timedelta(seconds=after_s)
            where = address(rig.delays, delay_s(due[message_id], now=now), "Other")  # type: ignore[arg-type]  # a queue's name
            channel.basic_publish(
                where.exchange,
                where.routing_key,
                RETRY,
                pika.BasicProperties(
                    message_id=message_id, delivery_mode=2, headers=headers | related
                ),
            )
    return due


def bind_other(rig: Rig) -> None:
    """Declare the other endpoint and bind it to the delays, as it does itself."""
    rig.create_receivers("Other")
    delivery = "nsb.v2.delay-delivery" if rig.delays is DelaysVersion.V2 else "nsb.delay-delivery"
    with rig.amqp() as connection:
        connection.channel().exchange_bind("Other", delivery, "#.Other")


def taken_by(other: Receiver) -> dict[str, datetime]:
    """Return when each message of the other endpoint came; none may come twice."""
    arrivals = [*other.arrivals]
    at = {str(each.properties.message_id): each.at for each in arrivals}
    assert len(at) == len(arrivals)
    return at


def demand_in_time(other: Receiver, due: Mapping[str, datetime]) -> None:
    """Demand that each message came once, not early, and hardly late."""
    arrived = taken_by(other)
    late_s = sorted((arrived[key] - at).total_seconds() for key, at in due.items())
    print(f"{len(late_s)} foreign: first {late_s[0]:.3f}, worst {late_s[-3:]}")
    assert (late_s[0] >= 0, late_s[len(late_s) // 2] < 2.0, late_s[-1] < 6.0) == (True,) * 3


def until_it_recalls(rig: Rig, process: subprocess.Popen[str]) -> None:
    """Wait until *process* has the recall's lease, or has ended."""
    held = (
        "SELECT 1 FROM migrator.lease WHERE name = 'lane.999' AND until > now() AND owner LIKE %s"
    )
    owner = f"%/{process.pid}/%"
    wait_until(lambda: process.poll() is not None or bool(rig.query(held, owner)), what="a recall")


def left_of_ours(rig: Rig) -> int:
    """Return how many of our messages are still in the levels."""
    headers = [found.properties.headers or {} for found in rig.drain_levels()]
    return sum("NServiceBus.Retries" not in each for each in headers)


def recalled(rig: Rig, *options: str) -> Any:
    """Return what came of the handed-over ones, or would."""
    return json.loads(rig.must(*PART, *options, "--json"))["handed_over"]


@pytest.mark.punctual
def test_ours_come_back_and_others_notice_nothing(rig: Rig) -> None:
    """Rows are what they were; foreign messages in the same levels arrive on time."""
    rig.prepare("Billing")
    bind_other(rig)
    ours(rig, 500)
    before = rig.stored()
    rig.migrate("--cutoff", "0s")
    assert rig.stored() == {}
    late = foreign(rig, [86_400.0 + n for n in range(200)])
    foretold = recalled(rig, "--endpoint", "Sales", "--dry-run")
    assert foretold["expected"]["in_levels"] == 500
    others = ("--destination", "Shipping", "--due-until", "2999-01-01", "--margin", "5m")
    nothing = recalled(rig, *others, "--dry-run")
    assert nothing["expected"]["in_levels"] == 0
    assert rig.stored() == {}
    with Receiver(rig.broker_url, "Other") as other:
        soon = foreign(rig, [4.0 + n / 25 for n in range(100)])
        done = recalled(rig, "--endpoint", "Sales", "--yes")
        other.wait(lambda: soon.keys() <= taken_by(other).keys())
        time.sleep(0.5)  # another copy would come soon
    assert (done["found"]["restored"], done["not_found"]) == (500, 0)
    assert rig.stored() == before
    demand_in_time(other, soon)
    assert {str(found.properties.message_id) for found in rig.drain_levels()} == set(late)
    again = recalled(rig, "--yes")
    assert again["found"]["restored"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [DelaysVersion.V2, DelaysVersion.V1])
def test_killed_at_any_moment_among_others(rig: Rig, version: DelaysVersion) -> None:
    """Twenty kills at random moments: all is back once, and others notice nothing."""
    rig.delays, random = version, chance(2026)
    rig.management_url = None  # without its counts each recall begins after the same two seconds
    rig.prepare("Billing")
    bind_other(rig)
    soonest, longest_s = timedelta(minutes=6), 200 * 86_400
    rows = [
        row(soonest + timedelta(seconds=longest_s * random.random() ** 6), body=b'{"n": %d}' % n)
        for n in range(5000)
    ]
    rig.insert(rows)
    before = rig.stored()
    rig.migrate("--cutoff", "0s")
    assert rig.stored() == {}
    far = foreign(rig, [300 + longest_s * random.random() ** 6 for _ in range(2000)])
    soon = foreign(rig, [20 + n * 0.13 for n in range(1000)])
    spans, back = [], []
    with Receiver(rig.broker_url, "Other") as other:
        reach_s = 0.5  # shorter when much came back, so that the kills find it at work
        for _ in range(20):
            process = rig.start(*PART, "--yes", "--margin", "5s")
            until_it_recalls(rig, process)
            time.sleep(2.0 + random.uniform(0.0, reach_s))
            rig.kill(process)
            back.append(len(rig.stored_ids()))
            came = back[-1] - (back[-2] if len(back) > 1 else 0)
            reach_s *= 0.7 if came > 500 else 1.0 if came else 1.1
        done: dict[str, Any] = {}
        for _ in range(2):  # what is left, and then a whole look that finds nothing
            began_s = time.monotonic()
            ended = rig.run(*PART, "--yes", "--margin", "5s", "--json")
            spans.append(round(time.monotonic() - began_s, 1))
            assert ended.returncode == 0, ended.stderr
            done = json.loads(ended.stdout)["handed_over"]
            print(done["found"])
        assert done["found"]["restored"] == done["found"]["leftover"] == done["not_found"] == 0
        # a queue whose confirm was lost dead-letters again after three minutes: late, not lost
        other.wait(lambda: soon.keys() <= taken_by(other).keys(), seconds=240)
        time.sleep(0.5)  # another copy would come soon
    print(f"rows back after each kill: {back}; the last two recalls took {spans} s")
    assert rig.stored() == before
    assert [found.timeout_id for found in rig.drain("Billing")] == []
    kept = Counter(str(found.properties.message_id) for found in rig.drain_levels())
    due = soon | far
    assert kept + Counter(taken_by(other).keys()) == Counter(due.keys())
    demand_in_time(other, {key: at for key, at in due.items() if key in taken_by(other)})


# ── rollback: both halves ───────────────────────────────────────────────────────────────────────


def half_handed_over(rig: Rig, count: int, fault: str) -> dict[str, tuple[Any, ...]]:
    """Hand over *count* rows, then have the daemon killed with as many claimed; return them all."""
    rig.settings = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
    rig.prepare("Billing")
    ours(rig, count)
    before = rig.stored()
    rig.migrate("--cutoff", "0s")
    ours(rig, count)
    before |= rig.stored()
    assert rig.run("run", "--endpoint", "Sales", fault=fault).returncode == -9
    assert len(before) == 2 * count > 0
    assert len(rig.stored()) < count
    return before


def test_one_rollback_brings_all_back(rig: Rig) -> None:
    """Half handed over, half claimed by a daemon that was killed: all rows are what they were.

    What another endpoint has claimed is not in the way.
    """
    rig.management_url = None  # whose counts would have to be waited for
    before = half_handed_over(rig, 300, "claim.done")
    with rig.sql() as connection:
        columns = "run_id, lane, mode, state, attempt, size, body_bytes, lease_token, claimed_at"
        connection.execute(
            f"INSERT INTO migrator.batch (endpoint, source, {columns})"
            f" SELECT 'Other', 'public.Other_TimeoutData', {columns}"
            " FROM migrator.batch WHERE state = 'claimed' LIMIT 1"
        )
    done = json.loads(rig.must("rollback", "--endpoint", "Sales", "--yes", "--json"))
    assert done["rows"] >= 100
    assert done["handed_over"]["expected"]["in_levels"] == 300
    assert done["handed_over"]["found"]["restored"] == 300
    assert rig.stored() == before
    assert left_of_ours(rig) == 0


def test_what_was_claimed_since_a_time_comes_back_alone(rig: Rig) -> None:
    """Handed over or not; what was claimed before stays in the levels."""
    rig.prepare("Billing")
    ours(rig, 20)
    rig.migrate("--cutoff", "0s")
    time.sleep(1.0)  # a time has whole seconds
    ((now,),) = rig.query("SELECT now()")
    since = f"{now.astimezone(UTC) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    time.sleep(1.0)
    ours(rig, 30)
    later = rig.stored()
    rig.migrate("--cutoff", "0s")
    ours(rig, 10)
    later |= rig.stored()
    assert rig.run("run", "--endpoint", "Sales", fault="claim.done").returncode == -9
    options = ("rollback", "--since", since, "--json")
    foretold = json.loads(rig.must(*options, "--dry-run"))
    done = json.loads(rig.must(*options, "--yes"))
    for each in (foretold, done):
        assert (each["rows"], each["handed_over"]["expected"]["in_levels"]) == (10, 30)
    assert (done["handed_over"]["found"]["restored"], done["handed_over"]["not_found"]) == (30, 0)
    assert rig.stored() == later
    assert left_of_ours(rig) == 20


@pytest.mark.slow
def test_a_rollback_that_is_killed_is_run_again(rig: Rig) -> None:
    """At every step of the second half; nothing is lost and nothing is there twice.

    What was staged and not committed stays in the staging queue and keeps nobody waiting; a dry
    run and status know before what comes back.
    """
    before = half_handed_over(rig, 300, "staged.confirmed")
    foretold = json.loads(rig.must("rollback", "--dry-run", "--json"))
    shown = json.loads(rig.must("status", "--json"))["rollback"]
    assert foretold["handed_over"]["expected"] == shown
    assert (shown["in_levels"], shown["left"]) == (300, 0)
    for fault in ("recall.restored", "recall.acknowledged", "recall.restored:3"):
        assert rig.run("rollback", "--yes", fault=fault).returncode == -9
    done = json.loads(rig.must("rollback", "--yes", "--json"))
    assert done["rows"] == 0
    assert rig.stored() == before
    assert left_of_ours(rig) == 0


def staged_copies(rig: Rig) -> int:
    """Return how many messages lie in the staging queues."""
    name = staging_name(rig.delays, rig.ledger_id(), Lane(0))
    with rig.amqp() as connection, suppress(pika.exceptions.ChannelClosedByBroker):
        return int(connection.channel().queue_declare(name, passive=True).method.message_count)
    return 0  # nothing was ever staged


def open_elsewhere(rig: Rig, mode: str, state: str) -> None:
    """Have another endpoint have a batch under way, in a lane of its own."""
    with rig.sql() as connection:
        columns = "run_id, attempt, size, body_bytes, lease_token, claimed_at"
        connection.execute(
            f"INSERT INTO migrator.batch (endpoint, source, lane, mode, state, {columns})"
            f" SELECT 'Other', 'public.Other_TimeoutData', 7, %s, %s, {columns}"
            " FROM migrator.batch LIMIT 1",
            (mode, state),
        )


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("claim.done", marks=pytest.mark.slow),
        pytest.param("staged.publishing", marks=pytest.mark.slow),
        pytest.param("staged.confirmed", marks=pytest.mark.slow),
        "staged.committing",
        pytest.param("staged.nacked", marks=pytest.mark.slow),
    ],
)
def test_a_rollback_settles_what_a_kill_cut_off(rig: Rig, fault: str) -> None:
    """One command, killed and run again: all rows are what they were, and no copy is left.

    Nothing new is claimed. What another endpoint has under way is in nobody's way.
    """
    rig.settings = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
    rig.management_url = None  # whose counts would have to be waited for
    rig.prepare("Billing")
    ours(rig, 1000)
    before = rig.stored()
    killed = rig.run("run", "--endpoint", "Sales", "--cutoff", "0s", fault=f"{fault}:3")
    assert killed.returncode == -9
    assert len(rig.stored()) < 1000
    open_elsewhere(rig, "staged", "committing")
    back = ("rollback", "--endpoint", "Sales", "--yes", "--json")
    if fault in ("staged.publishing", "staged.committing"):
        assert rig.run(*back, fault="settle.resolved").returncode == -9
    done = json.loads(rig.must(*back))
    assert rig.stored() == before
    recalled_rows = done["handed_over"]["expected"]["in_levels"]
    assert recalled_rows == (done["handed_over"].get("found") or {"restored": 0})["restored"]
    assert done["rows"] + recalled_rows < 1000
    assert (done["left_staged"], staged_copies(rig), left_of_ours(rig)) == (0, 0, 0)
    assert [found.timeout_id for found in rig.drain("Billing")] == []


@pytest.mark.parametrize(
    ("fault", "queue", "then"),
    [
        pytest.param("direct.begun", "Billing", "direct.confirmed", marks=pytest.mark.slow),
        ("direct.publishing", "Billing", "direct.publishing"),
        pytest.param("direct.confirmed", "Invoices", "direct.handed_over", marks=pytest.mark.slow),
    ],
)
def test_a_rollback_takes_back_what_was_being_published(
    rig: Rig, fault: str, queue: str, then: str
) -> None:
    """One command, killed and run again: all rows are what they were, and no copy is left.

    Nothing new is claimed, and what another endpoint is publishing is in nobody's way. Where the
    messages went to is remembered, if the run was told to rename destinations.
    """
    rig.settings = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
    rig.management_url = None  # whose counts would have to be waited for
    rig.prepare(queue)
    ours(rig, 1000)
    before = rig.stored()
    renamed = () if queue == "Billing" else ("--map", f"Billing={queue}")
    run = ("run", "--endpoint", "Sales", "--mode", "direct", "--cutoff", "0s", *renamed)
    assert rig.run(*run, fault=f"{fault}:3").returncode == -9
    assert len(rig.stored()) < 1000
    open_elsewhere(rig, "direct", "publishing")
    claimed = rig.query("SELECT id FROM migrator.batch ORDER BY id")
    back = ("rollback", "--endpoint", "Sales", "--json")
    foretold = json.loads(rig.must(*back, "--dry-run"))
    assert (foretold["untouched"], foretold["republished_due"]) == ([], 0)
    assert rig.run(*back, "--yes", fault=then).returncode == -9
    done = json.loads(rig.must(*back, "--yes"))
    assert rig.stored() == before
    assert done["republished"] == ([] if then == "direct.handed_over" else foretold["republished"])
    assert (done["left_staged"], staged_copies(rig), left_of_ours(rig)) == (0, 0, 0)
    assert [found.timeout_id for found in rig.drain(queue)] == []
    assert rig.query("SELECT id FROM migrator.batch ORDER BY id") == claimed
    opened = "SELECT endpoint FROM migrator.batch WHERE state IN ('claimed', 'publishing')"
    assert rig.query(opened) == [("Other",)]


@pytest.mark.slow
def test_what_is_due_by_then_goes_to_its_destination(rig: Rig) -> None:
    """Whether it was there already, nobody can tell: so it is there, maybe twice, and not lost."""
    rig.management_url = None
    rig.prepare("Billing")
    rig.insert(row(timedelta(seconds=-5)) for _ in range(20))
    overdue = rig.stored_ids()
    ours(rig, 100)
    before = rig.stored()
    run = ("run", "--endpoint", "Sales", "--cutoff", "0s")
    assert rig.run(*run, fault="direct.confirmed").returncode == -9
    told = rig.run("rollback", "--dry-run").stderr
    assert "were being published when their process was killed" in told
    assert "20 rows of these were due, and would go to the destination, maybe again" in told
    done = json.loads(rig.must("rollback", "--yes", "--json"))
    assert (len(done["republished"]), done["republished_due"]) == (1, 20)
    assert done["handed_over"]["expected"]["left"] == 20
    assert rig.stored() == {key: each for key, each in before.items() if key not in overdue}
    assert left_of_ours(rig) == 0
    assert Counter(found.timeout_id for found in rig.drain("Billing")) == dict.fromkeys(overdue, 2)
