"""What somebody changes at the broker while a daemon runs is found, and waited for."""

from __future__ import annotations

import json
from pathlib import Path

from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.daemon import jobs, listen, listens, noted, signals, status
from tests.e2e.rig import Rig
from tests.e2e.rows import row


def test_a_harmful_policy_holds_until_it_is_gone_and_a_lost_binding_is_made_again(
    rig: Rig, vhost: Vhost, tmp_path: Path
) -> None:
    """Nobody has to resume; rows stored meanwhile are moved then, and the ledger has it all."""
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_BROKER__RECHECK_INTERVAL": "500ms",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    rig.prepare()
    rig.insert([row()])
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    wait_until(lambda: not rig.stored_ids(), what="the first row")
    wait_until(lambda: _outcome(rig) == "fine", what="a first look")
    harmful = {"overflow": "drop-head", "alternate_exchange": "others"}
    vhost.node.set_policy(vhost.name, "all", pattern=".*", **harmful)
    wait_until(lambda: signals(rig) == ["broker_check"], what="a hold")
    (hold,) = status(rig)["holds"]
    assert hold["observed"].startswith("policy all: it sets overflow on ")
    assert hold["limit"].startswith("narrow its pattern so that it leaves these queues alone")
    checked = json.loads(rig.must("check", "--endpoint", "Sales", "--json", codes=(3,)))
    refused = {f["subject"] for f in checked["findings"] if f["level"] == "refused"}
    assert refused == {"policy all", "alternate-exchange"}
    rig.insert([row()])
    assert _outcome(rig) == "refused"
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.exchange_unbind("Billing", "nsb.v2.delay-delivery", "#.Billing")
    assert len(rig.stored_ids()) == 1
    vhost.node.delete_policy(vhost.name, "all")
    wait_until(lambda: not rig.stored_ids(), what="going on by itself")
    assert signals(rig) == []
    wait_until(lambda: _outcome(rig) == "fine", what="nothing to find")
    log = rig.stop(process)
    outcomes = [each["outcome"] for each in noted(rig, "recheck")]
    assert [outcomes[0], outcomes[-1]] == ["fine", "fine"]
    assert "refused" in outcomes
    assert [each["signal"] for each in noted(rig, "hold_ended")] == ["broker_check"]
    assert "destinations_bound_again" in log


def _outcome(rig: Rig) -> str | None:
    """Return what came of the last look; None: there was none yet."""
    last = jobs(rig)["recheck"]["last"]
    return None if last is None else str(last["outcome"])
