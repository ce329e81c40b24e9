"""What only reads writes nothing, on either server; and what the preview says comes true."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any, Final

from psycopg import sql

from dev.servers import wait_until
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import staging_name
from tests.e2e.dispatching import waiting
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, nameless, row
from tests.e2e.test_accounting import bad_rows, lost_rows

READERS: Final = (
    (("preview", "--endpoint", "Sales"), 0),
    (("preview", "--endpoint", "Sales"), 0),
    (("status",), 0),
    (("preview", "--offline", "--endpoint", "Sales"), 0),
    (("delays", "show"), 0),
    (("rollback", "--dry-run"), 0),
    (("quarantine", "list"), 0),
)
SIDE_BY_SIDE: Final = 4


def database_text(rig: Rig) -> dict[str, list[str]]:
    """Return all rows of all tables of all schemas as sorted text, and every relation's name."""
    relations = rig.query(
        "SELECT n.nspname, c.relname, c.relkind::text FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
    )
    found = {"relations": sorted(map(str, relations))}
    for schema, name, kind in relations:
        if kind == "r":  # sequences do move: the trial claim of preflight is rolled back
            what = sql.Identifier(schema, name)
            rows = rig.query(sql.SQL("SELECT t::text FROM {} t").format(what))
            found[f"{schema}.{name}"] = sorted(map(str, rows))
    return found


def broker_text(rig: Rig, vhost: Any) -> dict[str, list[str]]:
    """Return exchanges, queues with what is in them, bindings and policies, as sorted text."""
    facts = {
        "exchanges": ("name", "type", "arguments"),
        "queues": ("name", "arguments"),
        "bindings": ("source", "destination", "routing_key", "arguments"),
        "policies": ("name", "definition"),
    }
    found = {
        kind: sorted(
            json.dumps({key: each[key] for key in keys}, sort_keys=True)
            for each in vhost.node.api("GET", f"{kind}/{vhost.name}")
        )
        for kind, keys in facts.items()
    }
    return {**found, "messages": sorted(map(str, counts(rig, vhost).items()))}


def counts(rig: Rig, vhost: Any) -> dict[str, int]:
    """Return how many messages each queue holds, as AMQP tells: the API is seconds late."""
    names = [str(each["name"]) for each in vhost.node.api("GET", f"queues/{vhost.name}")]
    return {name: waiting(rig, name) for name in names}


def test_verbs_that_read_write_nothing(rig: Rig, vhost: Any) -> None:
    """With an orphaned lane, a batch in staging, a filled quarantine, parked rows: all stays so."""
    rig.prepare()
    rig.insert([row() for _ in range(30)])
    rig.insert([nameless("Nowhere"), row(headers={"NServiceBus.MessageId": "m" * 256})])
    rig.insert([row(timedelta(days=9 * 366)), row(-timedelta(days=1))])
    rig.must("run", "--endpoint", "Sales", "--once", "--cutoff", "0s", codes=(5,))
    rig.insert([row() for _ in range(30)])
    killed = rig.run("run", "--endpoint", "Sales", fault="staged.confirmed")
    assert killed.returncode == -9
    rig.insert([row() for _ in range(10)])
    staging = staging_name(rig.delays, rig.ledger_id(), Lane(0))
    wait_until(lambda: waiting(rig, staging) == 31, what="all that is staged, and the receipt")
    before = database_text(rig), broker_text(rig, vhost)
    for start in range(0, len(READERS), SIDE_BY_SIDE):
        some = READERS[start : start + SIDE_BY_SIDE]
        started = [(rig.start(*args), args, code) for args, code in some]
        for process, args, code in started:
            done = rig.finish(process)
            assert done.returncode == code, f"{args}: {done.stderr}"
    after = database_text(rig), broker_text(rig, vhost)
    for was, now in zip(before, after, strict=True):
        assert was.keys() == now.keys()
        changed = {key: (was[key], now[key]) for key in was if was[key] != now[key]}
        assert changed == {}


def test_the_preview_comes_true(rig: Rig) -> None:
    """Each number of the preview of a mixed store is what `run --once` then does."""
    rig.settings["MIGRATOR_BROKER__MAX_MESSAGE_BYTES"] = "1100000"
    rig.prepare("Billing", "Shipping")
    with rig.amqp() as connection:
        connection.channel().exchange_declare("exchange-without-queue", "fanout", durable=True)
    bad, lost = bad_rows(), lost_rows()
    left = [row(timedelta(minutes=n)) for n in range(-20, 40, 2)]  # the eleventh is due now
    beyond = [row(timedelta(days=40 + n)) for n in range(7)]
    good = [row(timedelta(hours=2 + n), destination="Billing") for n in range(25)]
    good += [row(timedelta(days=2 + n), destination="Shipping") for n in range(15)]
    renamed = [row(timedelta(days=5), destination="Old.Billing") for _ in range(3)]
    everything: list[Row] = [*bad.values(), *lost.values(), *left, *beyond, *good, *renamed]
    rig.insert(everything)
    choices = ("--cutoff", "1h", "--horizon", "30d", "--map", "Old.Billing=Billing")
    text = rig.must("preview", "--endpoint", "Sales", "--json", *choices)
    (told,) = json.loads(text)["endpoints"]
    checked = rig.run("preview", "--endpoint", "Sales", "--json", *choices)
    rig.must("run", "--endpoint", "Sales", "--once", *choices, codes=(5,))

    assert told["stored"] == len(everything)
    assert told["overdue"] == 11
    assert told["left"] == len(left)
    assert told["beyond_horizon"] == len(beyond)
    assert rig.stored_ids() == {each.id for each in (*left, *beyond)}
    assert told["to_migrate"] == len(everything) - len(left) - len(beyond)
    quarantined = rig.quarantined()
    seen = Counter(quarantined.values())
    assert {q["reason"]: q["count"] for q in told["quarantine"]} == seen
    assert rig.parked() == {each.id: reason for reason, each in lost.items()}
    for entry in told["quarantine"]:
        assert all(quarantined[each] == entry["reason"] for each in entry["examples"])
    warned = {
        f["subject"]: f["text"]
        for f in json.loads(checked.stdout)["findings"]
        if f["check"] == "destinations" and f["level"] == "warning"
    }
    assert set(warned) == {"Nowhere", "exchange-without-queue"}
    found = [*rig.drain_levels(), *rig.drain("Billing", "Shipping")]
    arrived = Counter(each.routing_key.rpartition(".")[2] for each in found)
    missing = {"Nowhere": 1, "exchange-without-queue": 1}
    assert told["destinations"] == {**arrived, **missing}
    assert told["to_hand_over"] == len(found) + sum(missing.values())
    status = json.loads(rig.must("status", "--json"))["endpoints"]
    assert [(e["handed_over"], e["quarantined"]) for e in status] == [(len(found), len(bad))]
