"""What preflight says to somebody who switches an endpoint over, on real servers."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from dev.processes import PATIENCE_S
from migrator.nservicebus.wiretime import build_wire_time
from tests.e2e.rig import Rig
from tests.e2e.rows import row

SATELLITES = ("Sales.Timeouts", "Sales.TimeoutsDispatcher")


def checked(rig: Rig, *args: str, code: int) -> dict[str, dict[str, dict[str, str]]]:
    """Return the findings by level, check and subject; `check` must end with *code*."""
    document = json.loads(rig.must("check", "--json", *args, codes=(code,)))
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in document["findings"]:
        of_check = found.setdefault(each["level"], {}).setdefault(each["check"], {})
        of_check[each["subject"]] = each["text"]
    return found


def lanes(rig: Rig) -> list[dict[str, Any]]:
    """Return the lanes as `status` tells them."""
    found: list[dict[str, Any]] = json.loads(rig.must("status", "--json"))["lanes"]
    return found


@pytest.mark.slow
def test_an_endpoint_is_switched_over(rig: Rig) -> None:
    """Refused without its queues, fine with them, warned of whoever consumes them; no delays."""
    rig.settings["MIGRATOR_ENDPOINTS"] = '[{"name": "Sales", "mode": "dispatch"}]'
    rig.create_store()
    rig.create_ledger()
    rig.insert([row(timedelta(days=2)), row(timedelta(seconds=5))])
    rig.create_receivers("Billing")

    refused = checked(rig, code=3)["refused"]
    assert {name: set(subjects) for name, subjects in refused.items()} == {
        "satellite-queues": {"Sales.Timeouts", "error"}
    }
    assert rig.run("run", "--endpoint", "Sales").returncode == 3

    rig.create_receivers(*SATELLITES, "error")
    found = checked(rig, code=0)
    assert "warning" not in found, found["warning"]
    assert set(found["ok"]["satellite-queues"]) == {*SATELLITES, "error"}

    dispatcher = rig.start("run", "--endpoint", "Sales")
    deadline = time.monotonic() + PATIENCE_S
    while "warning" not in (found := checked(rig, code=0)):
        assert time.monotonic() < deadline
        assert dispatcher.poll() is None, rig.finish(dispatcher).stderr[-4000:]
    assert set(found["warning"]) == {"satellite-queues"}
    assert set(found["warning"]["satellite-queues"]) <= set(SATELLITES)
    (lane,) = lanes(rig)
    assert (lane["serves"], lane["is_alive"]) == ("public.Sales_TimeoutData", True)
    rig.stop(dispatcher)
    assert "warning" not in checked(rig, code=0)


def test_an_input_queue_may_have_another_name(rig: Rig) -> None:
    """The satellites are looked for there, and the error queue where the endpoint has it."""
    endpoint = {"name": "Sales", "mode": "dispatch", "queue": "In", "error_queue": "sales.error"}
    rig.settings["MIGRATOR_ENDPOINTS"] = json.dumps([endpoint])
    rig.create_store()
    rig.create_ledger()
    rig.create_receivers("In.Timeouts", "sales.error")
    found = checked(rig, code=0)["ok"]["satellite-queues"]
    assert set(found) == {"In.Timeouts", "In.TimeoutsDispatcher", "sales.error"}
    assert "no control messages are read" in found["In.TimeoutsDispatcher"]


def test_the_printed_permissions_are_enough(rig: Rig, vhost: Any) -> None:
    """A user with exactly these stores, sends, retries and gives up; nothing is refused."""
    rig.settings |= {
        "MIGRATOR_ENDPOINTS": '[{"name": "Sales", "mode": "dispatch"}]',
        "MIGRATOR_DISPATCH__RETRY_DELAYS": '["1s"]',
    }
    rig.create_store()
    rig.create_ledger()
    rig.create_receivers("Billing", *SATELLITES, "error")
    grants = ("broker", "grants", "--json", "--destination", "Billing")
    wanted = json.loads(rig.must(*grants))
    vhost.node.add_user("least", "pw")
    patterns = {key: wanted[key] for key in ("configure", "write", "read")}
    vhost.node.set_permissions(vhost.name, "least", **patterns)
    rig.insert([row(-timedelta(seconds=5))])
    lost = pika.BasicProperties(message_id="1", headers=wire_headers("Nowhere"))
    kept = pika.BasicProperties(message_id="2", headers=wire_headers("Billing"))
    with rig.amqp() as connection:
        for properties in (lost, kept, pika.BasicProperties(message_id="3")):
            connection.channel().basic_publish("", "Sales.Timeouts", b"{}", properties)
    limited = vhost.node.amqp_url(vhost.name, user="least", password="pw")
    dispatcher = rig.start("run", "--endpoint", "Sales", MIGRATOR_BROKER__URL=limited)
    found: Counter[str] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while found != Counter({"Billing": 2, "error": 2}):
        assert time.monotonic() < deadline, found
        assert dispatcher.poll() is None, rig.finish(dispatcher).stderr[-4000:]
        found.update(each.queue for each in rig.drain("Billing", "error"))
    assert "ACCESS_REFUSED" not in rig.stop(dispatcher)


def wire_headers(destination: str) -> dict[str, str]:
    """Return what asks for a message to be sent at once."""
    return {
        "NServiceBus.Timeout.Expire": build_wire_time(datetime.now(UTC)),
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": destination,
    }
