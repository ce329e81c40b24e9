"""Events of the audit trail, as the status page tells them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

import migrator
from migrator.ledger.report import AuditEvent
from migrator.nservicebus.timeouts import BatchId
from migrator.web.events import SENTENCES, event_text
from tests.support.panel import some_snapshot

FOLDER: Final = Path(migrator.__file__).parent
WRITERS: Final = ("record", "event", "note", "_record")
"""Methods that write an event, or pass it on; what else is called so has no kind."""
LOGS: Final = ("runs", "audit_log")
"""How the names of those end that have them, without what is in front of it."""


def told(kind: str, detail: dict[str, Any], **changes: Any) -> str:
    """Return the sentence about an event of Sales and batch 7."""
    event = replace(some_snapshot().events[0], kind=kind, batch=BatchId(7), detail=detail)
    return event_text(replace(event, **changes))


def recorded() -> dict[str, str]:
    """Return the kinds of events that any part of migrator records, with where."""
    found = {}
    for path in sorted(FOLDER.rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        classes = [each.body for each in module.body if isinstance(each, ast.ClassDef)]
        for function in chain(module.body, *classes):
            if isinstance(function, ast.FunctionDef):  # with those that are in it
                for kind in kinds_in(function, path):
                    found[kind] = str(path.relative_to(FOLDER))
    return found


def kinds_in(function: ast.FunctionDef, path: Path) -> Iterator[str]:
    """Yield the kinds of what *function* writes itself."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and is_writer(call.func) and call.args:
            first = call.args[0]
            if isinstance(first, ast.Name) and first.id == "connection":
                first = call.args[1]  # an event in a transaction of the caller's
            yield from values(first, function, path)


def is_writer(called: ast.expr) -> bool:
    """Return whether *called* writes an event."""
    if not isinstance(called, ast.Attribute) or called.attr not in WRITERS:
        return False
    of = called.value
    name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    if called.attr == "_record":
        return name == "self"
    return name.endswith(LOGS) or (called.attr == "event" and name == "self")


def values(node: ast.expr, function: ast.FunctionDef, path: Path) -> Iterator[str]:
    """Yield the texts that *node* may be; what the caller of *function* gave is none of them."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from values(one, function, path)
            yield from values(other, function, path)
        case ast.Name(id=name) if name.isupper():
            module = ".".join(("migrator", *path.relative_to(FOLDER).with_suffix("").parts))
            yield getattr(importlib.import_module(module), name)
        case ast.Name(id=name) if name not in {each.arg for each in function.args.args}:
            found = [*assigned(name, function)]
            assert found, f"{path}: what is {name} of {function.name}?"
            for each in found:
                yield from values(each, function, path)
        case _:
            assert isinstance(node, ast.Name | ast.Attribute), ast.unparse(node)


def assigned(name: str, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what is assigned to a variable of *function*."""
    for each in ast.walk(function):
        if not isinstance(each, ast.Assign):
            continue
        for target in each.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield each.value
            if isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                for one, value in zip(target.elts, each.value.elts, strict=True):
                    if isinstance(one, ast.Name) and one.id == name:
                        yield value


def test_every_kind_that_is_recorded_has_a_sentence() -> None:
    """And there is none about what nobody records."""
    found = recorded()
    print(found)
    assert found.keys() == SENTENCES.keys()


SAID: Final[list[tuple[str, dict[str, Any], str]]] = [
    (
        "command",
        {"command": "pause", "who": "jo", "reason": "index", "answer": "Sales is paused"},
        "jo paused Sales (index): Sales is paused",
    ),
    (
        "command",
        {"command": "set", "setting": "lanes", "value": "99", "is_done": False, "answer": "no"},
        "alice wanted to set lanes to 99 and was refused: no",
    ),
    (
        "command",
        {"command": "retry", "reason": "no-destination", "answer": "3 rows tried again"},
        "alice had rows in quarantine tried again (no-destination): 3 rows tried again",
    ),
    (
        "pause",
        {"is_paused": True, "signal": "paused", "observed": "index (jo)"},
        "Claiming of Sales is paused until an operator resumes it. Paused by an operator: "
        "index (jo)",
    ),
    ("pause", {"is_paused": False}, "Sales is no longer paused"),
    (
        "hold_began",
        {"signal": "throttle_http", "limit": "", "observed": "busy {x}"},
        "Claiming of Sales is paused. The throttle URL says no: busy {x}",
    ),
    (
        "hold_ended",
        {"signal": "level_depth", "observed": "9 left", "limit": "at most 5", "held_s": 300.0},
        "Rows of Sales are claimed again, after 5 minutes. Over: The delay levels are full: "
        "9 left (at most 5)",
    ),
    (
        "critical_load",
        {"reason": "throttle.critical_latency: 9 s"},
        "A critical limit was exceeded, and the daemon (alice) ends: throttle.critical_latency: "
        "9 s",
    ),
    (
        "reload",
        {"is_done": True, "changed": ["handover.pace"], "needs_restart": ["web.listen", "log.x"]},
        "The daemon (alice) read its settings again: handover.pace is in force; web.listen, log.x "
        "count after a restart only",
    ),
    (
        "reload",
        {"is_done": True, "changed": [], "needs_restart": []},
        "The daemon (alice) read its settings again: they are as before",
    ),
    (
        "reload",
        {"is_done": False, "error": "handover.lanes = 'two'"},
        "The daemon (alice) read its settings again, found them wrong and changed nothing: "
        "handover.lanes = 'two'",
    ),
    (
        "recheck",
        {"outcome": "fine", "text": "nothing would refuse a start"},
        "The daemon (alice) repeated the checks of the broker: nothing would refuse a start",
    ),
    (
        "probe",
        {"outcome": "late", "late_levels": [3], "probes": [{}], "text": "levels late: 3"},
        "The daemon (alice) probed the delays: levels late: 3",
    ),
    (
        "probe",
        {"outcome": "failed", "error": "no broker"},
        "The daemon (alice) could not probe the delays: no broker",
    ),
    (
        "capacity_measured",
        {"exchange_cost_s": 0.000081, "broker_version": "3.13.7", "bursts": [{}], "vhost": "/"},
        "alice measured how fast the delay levels let messages go: each exchange costs a level "
        "0.081 ms, on RabbitMQ 3.13.7",
    ),
    (
        "quarantine_retried",
        {"rows": 1, "reason": None, "id": "t-7"},
        "alice had 1 row of Sales in quarantine (timeout t-7) tried again",
    ),
    (
        "quarantine_discarded",
        {"rows": 12345, "reason": "no-destination", "id": None},
        "alice discarded 12 345 rows of Sales in quarantine (no-destination): they are never sent",
    ),
    ("batch_resolved", {"as": "claimed"}, "alice resolved batch 7 as claimed"),
    (
        "batch_resolved",
        {"as": "lost", "state": "claiming", "source": "T", "rows": 40, "evidence": "no table T"},
        "alice resolved batch 7 as lost (40 rows of T): no table T",
    ),
    (
        "ledger_purged",
        {"before": "2026-01-02T03:04:05+01:00", "run": 12, "rows": 5000, "is_all": False},
        "alice deleted 5 000 rows of run 12 from the ledger, settled and due before "
        "2026-01-02 02:04 UTC; there are more",
    ),
    (
        "rolled_back",
        {"rows": 5000, "quarantined": 3, "run": 12},
        "alice rolled back run 12: 5 000 rows not handed over, and 3 rows from quarantine, are "
        "back in the tables",
    ),
    (
        "rolled_back",
        {"rows": 1, "quarantined": 0, "run": None},
        "alice rolled back: 1 row not handed over is back in the tables",
    ),
    (
        "recalled",
        {"restored": 57833, "leftover": 2, "too_near": 4, "taken": 1, "foreign": 9},
        "alice recalled what was handed over: 57 833 rows are back in the tables; 2 copies of rows "
        "that were back already are removed; 5 messages stay at the broker (4 due too soon, 1 "
        "with a row in the table again)",
    ),
    (
        "recalled",
        {"restored": 1},
        "alice recalled what was handed over: 1 row is back in the tables",
    ),
    (
        "verified",
        {"verdict": "balanced", "rows_checked": 6107, "discrepancies": {}, "doubtful": []},
        "alice verified every timeout: everything agrees; 6 107 rows were compared",
    ),
    (
        "verified",
        {"verdict": "doubtful", "rows_checked": 1, "doubtful": [7, 9], "not_checked": ["a"]},
        "alice verified every timeout: everything agrees, but 2 batches (7, 9) may "
        "be at the broker or not; 1 row was compared; 1 thing was not checked",
    ),
    (
        "verified",
        {"discrepancies": {"rows_gone": 1, "twice_in_levels": 2000}, "doubtful": [7]},
        "alice verified every timeout: 2 001 things do not agree (rows gone 1, "
        "twice in levels 2 000)",
    ),
    (
        "ledger_adopted",
        {"ledger": "new", "former_ledger": "old", "from": "x", "batches": {"sent": 2}},
        "alice adopted this copy of the ledger old: it is new from now on; 2 batches were not "
        "settled",
    ),
    (
        "ledger_moved",
        {"former_ledger": "old", "from": "x", "to": "y", "batches": {}},
        "alice recorded that the ledger old was moved into this database, and keeps its id",
    ),
    (
        "failover_settled",
        {
            "handed_over_from_store": 1000,
            "handed_over_from_batches": 1,
            "not_sent": 1,
            "doubtful": 3,
            "doubtful_batches": [4, 5],
            "nowhere": 1,
        },
        "alice settled what the database lost in a failover: 1 001 rows are in the levels and "
        "handed over; 1 row is still to be sent; 3 rows are doubtful (batches 4, 5); 1 message "
        "comes from rows that no longer exist",
    ),
    (
        "decommission_begun",
        {"queue": "q", "bindings": [{"source": "x"}]},
        "alice began to decommission Sales: 1 binding is cut first",
    ),
    (
        "decommission_undone",
        {"bindings": [], "refusals": ["rows_in_table"], "deleted": []},
        "alice could not decommission Sales (rows_in_table); what was cut is bound again",
    ),
    (
        "decommission_undone",
        {"bindings": [{}, {}], "refusals": ["still_there"], "deleted": ["queue q"]},
        "alice could not decommission Sales (still_there); 2 bindings could not be made again; "
        "deleted before that: queue q",
    ),
    (
        "decommissioned",
        {"source": "T", "deleted": ["queue q"], "table_dropped": True, "bindings": []},
        "alice decommissioned Sales: queue q, table T are gone",
    ),
]


@pytest.mark.parametrize(("kind", "detail", "text"), SAID)
def test_events_are_told_as_sentences(kind: str, detail: dict[str, Any], text: str) -> None:
    """With who did it, and why; numbers in groups, and nouns that go with them."""
    assert told(kind, detail) == text


def test_every_sentence_is_read_here() -> None:
    """So that none is written that nobody has seen."""
    assert {kind for kind, _, _ in SAID} == SENTENCES.keys()


@pytest.mark.parametrize("kind", sorted(SENTENCES))
@pytest.mark.parametrize("value", [None, "x", "{x}", -3, 1.5, True, ["a"], {"b": 1}, [{"c": []}]])
def test_what_another_version_recorded_is_told_as_far_as_it_goes(kind: str, value: object) -> None:
    """Nothing that is missing, or of another kind, keeps the page from being shown."""
    keys = {key for _, detail, _ in SAID for key in detail}
    for text in (told(kind, dict.fromkeys(keys, value)), told(kind, {})):
        assert text
        assert "None" not in text


def test_an_event_that_is_not_known_is_told_with_what_it_has() -> None:
    """A later version may record others; structures are left out."""
    found = told("lane_moved", {"rows": 5, "to": "b", "x": None, "more": {"a": [1]}})
    assert found == "alice recorded “lane moved” of batch 7: rows 5, to b"
    assert told("lane_moved", {}, batch=None, endpoint=None) == "alice recorded “lane moved”"


def test_no_event_is_too_long_for_a_page() -> None:
    """The ledger has all of it."""
    found = told("recheck", {"text": "y" * 5000})
    assert len(found) == 301
    assert found.endswith("yyy…")
    assert isinstance(some_snapshot().events[0], AuditEvent)
