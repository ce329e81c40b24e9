"""Verifying: each planted discrepancy is found, nothing else is, and nothing is disturbed."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, address, level_name, parse_routing_key
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from tests.e2e.rig import Rig
from tests.e2e.rows import Found, Row, row

SECRET = "nobody-may-read-this"  # in every body and every header


def ours(rig: Rig, count: int, *, first: timedelta = timedelta(days=1)) -> list[Row]:
    """Store *count* timeouts, due from *first* on, an hour apart."""
    rows = [
        row(
            first + timedelta(hours=n),
            body=f'{{"{SECRET}": {n}}}'.encode(),
            headers={"NServiceBus.Acme": SECRET},
        )
        for n in range(count)
    ]
    rig.insert(rows)
    return rows


def take(rig: Rig, *wanted: Row) -> dict[str, Found]:
    """Take the messages of *wanted* out of the levels behind everybody's back; the others stay."""
    ids, taken = {each.id for each in wanted}, {}
    with rig.amqp() as connection:
        channel = connection.channel()
        for level in range(27, -1, -1):
            queue = level_name(rig.delays, level)
            while (got := channel.basic_get(queue))[0] is not None:
                method, properties, body = got
                found = Found(
                    queue=queue, routing_key=method.routing_key, properties=properties, body=body
                )
                if found.timeout_id in ids:
                    channel.basic_ack(method.delivery_tag)
                    taken[found.timeout_id] = found
    assert set(taken) == ids
    return taken


def put(rig: Rig, *messages: Found, delays: DelaysVersion = DelaysVersion.V2) -> None:
    """Put messages into the levels, to be delivered when they would have been."""
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for each in messages:
            where = address(delays, *parse_routing_key(each.routing_key))
            channel.basic_publish(where.exchange, each.routing_key, each.body, each.properties)


def verified(rig: Rig, *options: str, codes: Sequence[int] = (0,)) -> dict[str, Any]:
    """Verify, and return what was said."""
    found: dict[str, Any] = json.loads(rig.must("verify", "--json", *options, codes=codes))
    return found


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of an evidence file, whose last one must have the right digest."""
    raw = file.read_bytes()
    *lines, last = raw.splitlines(keepends=True)
    found = [json.loads(line) for line in lines]
    assert json.loads(last)["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest()
    return [*found, json.loads(last)]


def test_each_planted_discrepancy_is_found(rig: Rig, tmp_path: Path) -> None:
    """And nothing else, in both generations; a kill leaves nothing of the evidence."""
    rig.delays = DelaysVersion.V1
    rig.create_levels()
    rig.delays = DelaysVersion.V2
    rig.prepare("Billing")
    rows = ours(rig, 150)
    rig.migrate("--cutoff", "0s")
    deleted, changed, different, removed, doubled, copied, recalled, moved, retried, *_ = rows
    taken = take(rig, different, removed, doubled, moved)
    retry = pika.BasicProperties(headers={RELATED_TO_TIMEOUT_ID: retried.id})
    put(rig, taken[doubled.id], taken[doubled.id])
    put(rig, replace(taken[different.id], body=b"another body"))
    put(rig, replace(taken[different.id], properties=retry, body=b"a retry"))
    put(rig, taken[moved.id], delays=DelaysVersion.V1)
    rig.insert([copied, recalled])
    with rig.sql() as connection:
        connection.execute("DELETE FROM migrator.timeout WHERE store_id = %s", [deleted.id])
        connection.execute(
            "UPDATE migrator.timeout SET body = 'x' WHERE store_id = %s", [changed.id]
        )
        connection.execute(
            "UPDATE migrator.timeout SET state = 'recalled' WHERE store_id = %s", [recalled.id]
        )
        connection.execute(
            "UPDATE migrator.batch SET handed_over_at = handed_over_at - interval '1 minute'"
        )
    file = tmp_path / "evidence.jsonl"
    options = ("--deep", "--rate", "100", "--evidence", str(file))
    assert rig.run("verify", *options, fault="verify.page:1").returncode == -9
    assert not [*tmp_path.iterdir()]
    found = verified(rig, *options, codes=[6])
    assert found["counts"] == {
        "rows_gone": 1,
        "content_changed": 1,
        "different_in_levels": 2,  # the body that changed in the ledger is another one, too
        "missing_from_levels": 1,
        "twice_in_levels": 1,
        "in_both_places": 1,
        "stray_in_levels": 1,
    }
    assert found["verdict"] == "discrepant"
    assert not [text for text in found["not_checked"] if "no counts yet" not in text]
    assert sum(level["foreign"] for level in found["levels"]) == 2  # of the deleted row; a retry
    assert sum(each["ours"] for each in found["levels"] if each["delays"] == "v1") == 1
    assert found["rows_checked"] == 149
    lines = lines_of(file)
    assert lines[0]["schema"] == "migrator/evidence/1"
    verdicts = {line["timeout_id"]: line["verdict"] for line in lines[1:-1]}
    assert len(verdicts) == len(lines) - 2 == 149
    assert {key: word for key, word in verdicts.items() if word != "agrees"} == {
        changed.id: "content_changed",
        different.id: "different_in_levels",
        removed.id: "missing_from_levels",
        doubled.id: "twice_in_levels",
        copied.id: "in_both_places",
        recalled.id: "stray_in_levels",
    }
    assert found["evidence_sha256"] == lines[-1]["sha256"]
    assert lines[-1]["totals"]["discrepancies"] == found["counts"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in file.read_text()
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_a_daemon_may_work_meanwhile(rig: Rig, rounds: int) -> None:
    """Whatever is claimed, handed over or delivered while it is verified, nothing looks wrong."""
    rig.prepare("Billing")
    process = rig.start(
        *("run", "--endpoint", "Sales", "--cutoff", "0s"),
        MIGRATOR_HANDOVER__BATCH_SIZE="50",
        MIGRATOR_HANDOVER__SWEEP_INTERVAL="1s",
        MIGRATOR_LOG__LEVEL="warning",  # nobody reads the pipe, and a full one stops the program
    )
    seen, stored = 0, 0
    for turn in range(rounds):
        ours(rig, 400 * rounds // 2, first=timedelta(seconds=2))
        soon = [row(timedelta(seconds=n / 20)) for n in range(200)]
        rig.insert(soon)
        stored += 400 * rounds // 2 + len(soon)
        wait_until(partial(rig.has_handed_over, turn + 1), what="a batch")
        options = ("--deep",) if turn % 2 == 0 else ()
        found = verified(rig, *options)
        print(
            turn, options, found["endpoints"][0]["claimed"], found["waiting"], found["not_checked"]
        )
        assert (found["verdict"], found["discrepancies"]) == ("balanced", [])
        if options:
            seen += sum(level["ours"] for level in found["levels"])
    wait_until(rig.is_done, what="the end")
    rig.stop(process)
    found = verified(rig, "--deep")
    assert (found["verdict"], found["discrepancies"]) == ("balanced", [])
    assert found["endpoints"][0]["handed_over"] == stored
    assert seen > 0
