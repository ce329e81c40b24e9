"""Bringing handed-over timeouts back: ours come back byte for byte, others notice nothing."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from dev.processes import PATIENCE_S
from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, address, delay_s
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, chance, row

FAR = timedelta(days=3)
RETRY = b'{"n": 0}'
"""As long as the bodies of our first ten rows."""


def ours(rig: Rig, count: int) -> list[Row]:
    """Store *count* timeouts, due from hours to months, and hand them over."""
    spread = [timedelta(hours=1 + 2 * n) for n in range(count)]
    rows = [row(due_in, body=f'{{"n": {n}}}'.encode()) for n, due_in in enumerate(spread)]
    rig.insert(rows)
    return rows


def foreign(rig: Rig, delays_s: Sequence[float]) -> dict[str, datetime]:
    """Send delayed messages of another endpoint into the levels; return when each is due.

    They look like delayed retries of timeouts that have arrived: with ids of rows that the ledger
    has handed over, and bodies as long as theirs.
    """
    due = {}
    headers = {"NServiceBus.MessageId": "x", "NServiceBus.Retries": "1"}
    ids = rig.first_handed_over(10)
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, after_s in enumerate(delays_s):
            related = {"NServiceBus.RelatedToTimeoutId": ids[number % len(ids)]} if ids else {}
            message_id, now = str(uuid.uuid4()), datetime.now(UTC)
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


@dataclass
class Other:
    """The other endpoint, which takes its messages as they come."""

    rig: Rig
    arrived: dict[str, datetime] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        """Note when each message came, until told to stop."""
        with self.rig.amqp() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=100)
            for method, properties, _ in channel.consume("Other", inactivity_timeout=0.1):
                if method is not None:
                    seen = str(properties.message_id)
                    if seen in self.arrived:
                        self.again.append(seen)
                    self.arrived[seen] = datetime.now(UTC)
                    channel.basic_ack(method.delivery_tag)
                elif self.stopped.is_set():
                    break
            channel.cancel()

    def demand_in_time(self, due: Mapping[str, datetime]) -> None:
        """Demand that each message came once, not early, and hardly late."""
        late_s = sorted((self.arrived[key] - at).total_seconds() for key, at in due.items())
        middle, worst = late_s[len(late_s) // 2], late_s[-3:]
        print(f"{len(late_s)} foreign: first {late_s[0]:.3f}, median {middle:.3f}, worst {worst}")
        assert (late_s[0] >= 0, middle < 2.0, self.again) == (True, True, [])
        assert late_s[-1] < 6.0


@contextmanager
def listening(rig: Rig) -> Iterator[Other]:
    """Let the other endpoint take its messages meanwhile."""
    other = Other(rig)
    thread = threading.Thread(target=other.listen)
    thread.start()
    try:
        yield other
    finally:
        other.stopped.set()
        thread.join()


def until_it_recalls(rig: Rig, process: subprocess.Popen[str]) -> None:
    """Wait until *process* has the recall's lease, or has ended."""
    holder = (
        "SELECT 1 FROM migrator.lease WHERE name = 'lane.999' AND owner LIKE %s AND until > now()"
    )
    with rig.sql() as connection:
        while process.poll() is None:
            if connection.execute(holder, [f"%/{process.pid}/%"]).fetchone():
                return
            time.sleep(0.02)


def left_of_ours(rig: Rig) -> int:
    """Return how many of our messages are still in the levels."""
    headers = [found.properties.headers or {} for found in rig.drain_levels()]
    return sum("NServiceBus.Retries" not in each for each in headers)


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
    foretold = json.loads(rig.must("recall", "--endpoint", "Sales", "--dry-run", "--json"))
    assert foretold["expected"]["in_levels"] == 500
    assert rig.stored() == {}
    with listening(rig) as other:
        soon = foreign(rig, [4.0 + n / 25 for n in range(100)])
        done = json.loads(rig.must("recall", "--endpoint", "Sales", "--yes", "--json"))
        wait_until(lambda: soon.keys() <= other.arrived.keys(), what="messages of others")
        time.sleep(0.5)  # another copy would come soon
    assert (done["found"]["restored"], done["not_found"]) == (500, 0)
    assert rig.stored() == before
    other.demand_in_time(soon)
    kept = [found for found in rig.drain_levels()]
    assert {str(found.properties.message_id) for found in kept} == set(late)
    again = json.loads(rig.must("recall", "--yes", "--json"))
    assert again["found"]["restored"] == 0


@pytest.mark.slow
def test_killed_again_and_again(rig: Rig) -> None:
    """However often a recall is killed, in the end each row is back once, and no copy is left."""
    rig.prepare("Billing")
    rows = ours(rig, 1000)
    before = rig.stored()
    rig.migrate("--cutoff", "0s")
    random = chance(7)
    for kill in range(20):
        fault = ("recall.restored", "recall.acknowledged")[kill % 2]
        process = rig.start("recall", "--yes", fault=f"{fault}:{random.randint(1, 2)}")
        done = rig.finish(process)
        assert done.returncode in (-9, 0), done.stderr[-2000:]
    rig.must("recall", "--yes")
    assert rig.stored() == before
    assert len(before) == len(rows)
    assert left_of_ours(rig) == 0


@pytest.mark.slow
def test_only_what_is_meant_comes_back(rig: Rig) -> None:
    """By destination, by due time, and never what is due too soon."""
    rig.prepare("Billing", "Shipping")
    rows = [
        row(FAR, destination="Billing"),
        row(FAR, destination="Shipping"),
        row(timedelta(days=9), destination="Shipping"),
        row(timedelta(seconds=75), destination="Shipping"),
    ]
    rig.insert(rows)
    rig.migrate("--cutoff", "0s")
    until = (datetime.now(UTC) + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    options = ("--destination", "Shipping", "--due-until", until, "--margin", "5m")
    done = json.loads(rig.must("recall", *options, "--yes", "--json", codes=[5]))
    assert rig.stored_ids() == {rows[1].id}
    assert (done["found"]["restored"], done["found"]["too_near"]) == (1, 1)
    assert done["found"]["out_of_scope"] == 2


@pytest.mark.slow
def test_nobody_may_work_meanwhile(rig: Rig) -> None:
    """A recall beside a running daemon is refused; nothing is touched."""
    rig.prepare("Billing")
    ours(rig, 10)
    process = rig.start("run", "--endpoint", "Sales")
    deadline_s = time.monotonic() + PATIENCE_S
    while rig.batch_states()["handed_over"] == 0:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    refused = rig.run("recall", "--yes")
    assert refused.returncode == 3
    assert "stop every `migrator run` first" in refused.stderr
    rig.stop(process)
    rig.must("recall", "--yes")
    assert len(rig.stored_ids()) == 10


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
    with listening(rig) as other:
        reach_s = 0.5  # shorter when much came back, so that the kills find it at work
        for _ in range(20):
            process = rig.start("recall", "--yes", "--margin", "5s")
            until_it_recalls(rig, process)
            time.sleep(2.0 + random.uniform(0.0, reach_s))
            rig.kill(process)
            back.append(len(rig.stored_ids()))
            came = back[-1] - (back[-2] if len(back) > 1 else 0)
            reach_s *= 0.7 if came > 500 else 1.0 if came else 1.1
        done: dict[str, Any] = {}
        for _ in range(2):  # what is left, and then a whole look that finds nothing
            began_s = time.monotonic()
            ended = rig.run("recall", "--yes", "--margin", "5s", "--json")
            spans.append(round(time.monotonic() - began_s, 1))
            assert ended.returncode == 0, ended.stderr
            done = json.loads(ended.stdout)
            print(done["found"])
        assert done["found"]["restored"] == done["found"]["leftover"] == done["not_found"] == 0
        wait_until(lambda: soon.keys() <= other.arrived.keys(), what="messages of others")
        time.sleep(0.5)  # another copy would come soon
    print(f"rows back after each kill: {back}; the last two recalls took {spans} s")
    assert rig.stored() == before
    assert [found.timeout_id for found in rig.drain("Billing")] == []
    kept = Counter(str(found.properties.message_id) for found in rig.drain_levels())
    due = soon | far
    assert kept + Counter(other.arrived.keys()) == Counter(due.keys())
    other.demand_in_time({key: at for key, at in due.items() if key in other.arrived})


# ── rollback: both halves ───────────────────────────────────────────────────────────────────────


def half_handed_over(rig: Rig, count: int, fault: str) -> dict[str, tuple[Any, ...]]:
    """Hand over *count* rows, then have the daemon killed with as many claimed; return them all."""
    rig.settings = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
    rig.prepare("Billing")
    first = ours(rig, count)
    before = rig.stored()
    assert len(first) == count
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


@pytest.mark.slow
def test_what_was_staged_and_not_committed_does_not_keep_a_rollback_waiting(rig: Rig) -> None:
    """It stays in the staging queue; a dry run and status know before what comes back."""
    before = half_handed_over(rig, 300, "staged.staged")
    foretold = json.loads(rig.must("rollback", "--dry-run", "--json"))
    shown = json.loads(rig.must("status", "--json"))["rollback"]
    assert foretold["handed_over"]["expected"] == shown
    assert (shown["in_levels"], shown["left"]) == (300, 0)
    done = json.loads(rig.must("rollback", "--yes", "--json"))
    assert (done["rows"], done["handed_over"]["found"]["restored"]) == (foretold["rows"], 300)
    assert rig.stored() == before
    assert left_of_ours(rig) == 0
    rig.must("rollback", "--yes")


@pytest.mark.slow
def test_a_rollback_is_killed_and_run_again(rig: Rig) -> None:
    """At every step of the second half; nothing is lost and nothing is there twice."""
    before = half_handed_over(rig, 300, "claim.done")
    for fault in ("recall.restored", "recall.acknowledged", "recall.restored:3"):
        assert rig.run("rollback", "--yes", fault=fault).returncode == -9
    done = json.loads(rig.must("rollback", "--yes", "--json"))
    assert done["rows"] == 0
    assert rig.stored() == before
    assert left_of_ours(rig) == 0


@pytest.mark.slow
def test_what_may_be_on_its_way_is_settled_first(rig: Rig) -> None:
    """After a kill in the middle of a commit, a rollback is refused, and says what to do first."""
    before = half_handed_over(rig, 200, "staged.nacked")
    refused = rig.run("rollback", "--yes", "--json")
    assert refused.returncode == 3
    assert "`migrator run --once` settles them" in json.loads(refused.stdout)["stopped_by"]
    rig.migrate("--cutoff", "0s")
    rig.must("rollback", "--yes")
    assert rig.stored() == before
    assert left_of_ours(rig) == 0
