"""The tools for the delay levels, on real servers: a frozen level is named, and mended as said."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from dev.processes import PATIENCE_S
from migrator.delays.routing import level_name
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import row

_SETTINGS_MS = {
    "dead_letter_worker_publisher_confirm_timeout": 2000,
    "quorum_tick_interval": 1000,
}
_GET = "application:get_env(rabbit, {}, undefined)."
_SET = "application:set_env(rabbit, {}, {})."
_UNSET = "application:unset_env(rabbit, {})."
_STEP = re.compile(
    r"create queue (?P<queue>\S+?)(?:,|$)"
    r"|bind exchange (?P<source>\S+) to (?P<kind>queue|exchange) (?P<target>\S+)"
    r" (?:with key (?P<key>[^\s,;]+)|without a key)"
)


@pytest.fixture
def impatient_node(vhost: Vhost) -> Iterator[Vhost]:
    """A virtual host whose levels try again every two seconds, not every three minutes.

    And they count every second. Queues take the settings over when they are declared, so those
    of other tests stay as they were.
    """
    before = {key: vhost.node.evaluate(_GET.format(key)) for key in _SETTINGS_MS}
    for key, value in _SETTINGS_MS.items():
        vhost.node.evaluate(_SET.format(key, value))
    yield vhost
    for key, was in before.items():
        vhost.node.evaluate((_UNSET if was == "undefined" else _SET).format(key, was))


def _held(vhost: Vhost) -> dict[str, int]:
    queues = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}")
    return {q["name"]: q["messages_dlx"] for q in queues if q.get("messages_dlx")}


def _verify(rig: Rig, *, code: int) -> list[dict[str, Any]]:
    shown = rig.must("delays", "verify", "--watch-for", "2s", "--json", codes=[code])
    found: list[dict[str, Any]] = json.loads(shown)["findings"]
    return found


def _obey(rig: Rig, remedy: str) -> list[str]:
    """Do what *remedy* says, step by step; return the steps."""
    steps = list(_STEP.finditer(remedy))
    with rig.amqp() as connection:
        channel = connection.channel()
        for step in steps:
            if step["queue"]:
                channel.queue_declare(step["queue"], durable=True)
            elif step["kind"] == "queue":
                channel.queue_bind(step["target"], step["source"], step["key"] or "")
            else:
                channel.exchange_bind(step["target"], step["source"], step["key"] or "")
    return [step[0] for step in steps]


def _count(rig: Rig, queue: str) -> int:
    with rig.amqp() as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


@pytest.mark.slow
def test_a_frozen_level_is_named_and_thaws_by_what_is_suggested(
    rig: Rig, impatient_node: Vhost
) -> None:
    """Forty timeouts for a queue that was deleted stop a level, until verify's remedy is done."""
    rig.prepare("Billing", "Gone")
    first = row(timedelta(seconds=20), destination="Gone")  # long after its queue is gone
    rows = [replace(first, id=str(uuid.uuid4())) for _ in range(40)]  # one delay, so one level
    rig.insert(rows)
    rig.migrate("--cutoff", "0s")
    assert not rig.stored_ids()
    with rig.amqp() as connection:
        connection.channel().queue_delete("Gone")
        connection.channel().exchange_delete("Gone")

    (early,) = [f for f in _verify(rig, code=3) if f["level"] == "refused"]
    assert (early["check"], early["subject"]) == ("ways-out", "Gone")
    assert "40 timeouts" in early["text"]

    deadline = time.monotonic() + PATIENCE_S
    while sum(_held(impatient_node).values()) < 40:  # the broker's counts lag
        assert time.monotonic() < deadline, "no level froze"
        time.sleep(0.2)
    (frozen_level,) = _held(impatient_node)
    frozen_at = time.monotonic()
    refused = {f["check"]: f for f in _verify(rig, code=3) if f["level"] == "refused"}
    took_s = time.monotonic() - frozen_at
    frozen = refused["frozen-levels"]
    assert frozen["subject"] == frozen_level
    assert "stands still for every endpoint" in frozen["text"]
    assert frozen["remedy"].startswith("40 timeouts for Gone were due in the past hour")

    steps = _obey(rig, frozen["remedy"])
    mended_at = time.monotonic()
    assert len(steps) == 2
    while _count(rig, "Gone") < 40:
        assert time.monotonic() < mended_at + PATIENCE_S, "the level stays frozen"
        time.sleep(0.2)
    print(f"named in {took_s:.1f} s, thawed {time.monotonic() - mended_at:.1f} s after {steps}")
    assert {found.timeout_id for found in rig.drain("Gone")} == {each.id for each in rows}
    assert level_name(rig.delays, 0)[:-2] in frozen_level
