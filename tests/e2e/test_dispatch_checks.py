"""What preflight says to somebody who switches an endpoint over, on real servers."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

from tests.e2e.rig import Rig, row

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


def test_an_endpoint_is_switched_over(rig: Rig) -> None:
    """Refused without its queues, fine with them, warned of whoever consumes them; no delays."""
    rig.settings["MIGRATOR_ENDPOINTS"] = '[{"name": "Sales", "mode": "dispatch"}]'
    rig.create_store()
    rig.must("db", "upgrade")
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
    deadline = time.monotonic() + 30
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
    rig.must("db", "upgrade")
    rig.create_receivers("In.Timeouts", "sales.error")
    found = checked(rig, code=0)["ok"]["satellite-queues"]
    assert set(found) == {"In.Timeouts", "In.TimeoutsDispatcher", "sales.error"}
    assert "no control messages are read" in found["In.TimeoutsDispatcher"]
