"""Tests of every check: what it is given, and the findings that come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.delays.topology import DelayEntities
from migrator.errors import (
    AccessRefused,
    DatabaseFailedOver,
    LedgerCloned,
    LedgerMissing,
    StoreError,
    StoreUnavailable,
    TargetUnavailable,
)
from migrator.ledger.report import BatchElsewhere, HeldDestination
from migrator.ledger.run_terms import ANYWHERE
from migrator.ledger.states import Mode
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, QueueName
from migrator.preflight.checks_broker import FACTOR, HARMFUL, OVERHEAD_BYTES
from migrator.preflight.checks_store import STAGING_QUEUE
from migrator.preflight.context import DISPATCH, Finding, Level
from migrator.rabbitmq.entities import PolicyRule, RejectLimit
from migrator.stores.endpoints import Quarantinable, Sample
from migrator.stores.ports import DueTime, StoreRemark
from tests.unit.preflight.fakes import (
    NO_API,
    NOW,
    OWN_QUEUES,
    RETRY,
    SALES,
    SATELLITES,
    Fake,
    FakeBroker,
    FakeHandOvers,
    FakeStore,
    binding,
    found,
    found_of_delays,
    ledger,
    members,
    preview,
    queue,
)

OK, WARNING, REFUSED, UNSEEN = Level.OK, Level.WARNING, Level.REFUSED, Level.NOT_CHECKED
V1 = DelaysVersion.V1
TOO_LARGE = Quarantinable(count=2, examples=["x-1"], detail="9 bytes")
Given = Mapping[str, Any]
Expected = Sequence[tuple[Level, str, str]]
"""Of each finding its level, its subject, and a part of its text or remedy."""


def check(findings: Sequence[Finding], expected: Expected) -> None:
    """Compare *findings* with what is *expected*."""
    told = [(f.level, f.subject, f"{f.text}; {f.remedy}") for f in findings]
    assert [each[:2] for each in told] == [each[:2] for each in expected], told
    for (_, _, text), (_, _, part) in zip(told, expected, strict=True):
        assert part in text


def broker(**answers: Any) -> Given:
    """Return a context whose broker answers so."""
    return {"broker": FakeBroker(**answers)}


def policy(**definition: object) -> Sequence[PolicyRule]:
    """Return a policy in force."""
    facts: Mapping[str, Any] = {"pattern": "", "apply_to": "", "priority": 0, "is_operator": False}
    return [PolicyRule(name="all", definition=definition, **facts)]


DISPATCHING: Given = {
    "endpoint_names": ("Sales",),
    "modes": {"Sales": DISPATCH},
    "satellites": (SATELLITES,),
}
"""One endpoint, dispatched with retries."""
WITHOUT_RETRIES: Given = {**DISPATCHING, "satellites": ()}
OLD = broker(version="3.9.29", enabled=NO_API)
USER = "broker user"
NAMES = [f"Q{n}" for n in range(5)]
BINDING = {"previews": [preview(dict.fromkeys([*NAMES, "Fine"], 1))], **broker(forbidden=NAMES)}
ROWS = preview({"Sales": 1000}, bytes=10**6)
NEEDED = FACTOR * (10**6 + 1000 * OVERHEAD_BYTES)
LEFT_5 = [preview(left=5)]
MINUTE: Given = {"cutoff": timedelta(minutes=1)}
COMMITS = [BatchElsewhere(batch=BatchId(7), lane=Lane(0), place=replace(ANYWHERE, delays="v2"))]
BOTH = {"Sales": queue(1), "Billing": queue(1)}
TWO = [preview({"Sales": 5}), preview({"Sales": 1, "Billing": 2})]
VENDORS = FakeStore(unfinished_vendor_runs=["a run"])
STORE, CONTROL = "Sales.Timeouts", "Sales.TimeoutsDispatcher"
SATELLITE_QUEUES = {STORE: queue(ready=7), CONTROL: queue(), "error": queue(3)}
NEAR_DUE: Given = {"endpoint_names": ["Sales"], "sends_near_due": True}


def room(left: int) -> Given:
    """Return a broker that has so many bytes left above its limit, and rows for it."""
    return {"previews": [ROWS], **broker(left=left)}


def satellites(**changed: Any) -> Given:
    """Return a dispatcher's context; *changed* queues as given, None: it does not exist."""
    there = {**SATELLITE_QUEUES, **changed}
    probes = {name: found for name, found in there.items() if found is not None}
    return {"satellites": [SATELLITES], **broker(probes=probes)}


def skew(seconds: float) -> Given:
    """Return a database whose clock is *seconds* ahead."""
    return {"clock": Fake(now=NOW + timedelta(seconds=seconds))}


def zone(*hours: int) -> Given:
    """Return a store with rows whose due time is so far from their header."""
    times = [NOW + timedelta(hours=each) for each in hours]
    return {
        "store": FakeStore(due_times=[DueTime(stored=t, due_at=t, expires_at=NOW) for t in times])
    }


def parked(destination: str) -> HeldDestination:
    """Return a destination that is parked."""
    return HeldDestination(
        endpoint=EndpointName("Sales"),
        source="Sales_TimeoutData",
        destination=destination,
        reason="no-permission",
        detail="why",
        tries=1,
        since=NOW,
        next_try_at=NOW,
    )


def limit(queue: str, ready: int, most: int, unit: str = "messages") -> RejectLimit:
    """Return the limit of a queue that rejects when it is full."""
    return RejectLimit(queue=queue, ready=ready, limit=most, unit=unit)


def colliding(*destinations: str, bound: Any = (), **more: Any) -> Given:
    """Return rows for *destinations*, next to names that are bound already."""
    return {"previews": [preview(dict.fromkeys(destinations, 1))], **broker(bound=bound), **more}


CASES: Mapping[str, tuple[str, Given, Expected]] = {
    # the broker itself
    "each alarm is a warning": (
        "broker-alarms", broker(alarm_texts=["memory alarm on a", "disk alarm on b"]),
        [(WARNING, "resource alarm", "memory alarm on a"),
         (WARNING, "resource alarm", "disk alarm on b")]),
    "a wrong password is not a broker that is gone": (
        "broker-reachable", broker(failure=AccessRefused("wrong password")),
        [(REFUSED, "broker", "refuses the connection: wrong password; check user")]),
    "a broker that is gone is one": (
        "broker-reachable", broker(failure=TargetUnavailable("timed out")),
        [(REFUSED, "broker", "cannot be reached: timed out; check broker.url")]),
    # rights
    "staging queues that may not be made": (
        "broker-rights", broker(forbidden=[OWN_QUEUES[0]]),
        [(REFUSED, OWN_QUEUES[0], "`migrator db grants --broker` print what the user needs, or use "
          "--mode direct")]),
    "direct needs no queue": (
        "broker-rights", {"chosen_mode": Mode.DIRECT, **broker(forbidden=OWN_QUEUES)},
        [(OK, USER, "")]),
    "without a ledger the names of queues are not known": (
        "broker-rights", {"own_queues": []}, [(UNSEEN, USER, "without a ledger")]),
    "retry queues that may not be made": (
        "broker-rights", {**DISPATCHING, **broker(forbidden=[RETRY])},
        [(REFUSED, RETRY, "set dispatch.retry_delays = []")]),
    "a dispatcher without retries makes and binds nothing": (
        "broker-rights", {**BINDING, **WITHOUT_RETRIES},
        [(OK, USER, "nothing has to be declared")]),
    "destinations that may not be bound are one finding": (
        "broker-rights", {**BINDING, "version": V1},
        [(OK, USER, ""),
         (WARNING, USER, "may not bind 5 of 6 destinations, whose rows would wait: Q0: no; Q1: no; "
          "Q2: no; and 2 more; grant it `write` on each destination and `read` on "
          "nsb.delay-delivery")]),
    "who may bind none is refused": (
        "broker-rights", {"previews": [preview({"Q0": 1})], **broker(forbidden=NAMES)},
        [(OK, USER, ""), (REFUSED, USER, "may not bind 1 of 1 destination")]),
    "who may not bind need not be able to": (
        "broker-rights", {**BINDING, "may_bind": False}, [(OK, USER, "")]),
    "strays wait for somebody": (
        "stray-messages", broker(probes={"migrator.poison.a": queue(ready=3)}),
        [(WARNING, "migrator.poison.a", "it contains 3 messages")]),
    "there are no strays": (
        "stray-messages", broker(probes={"migrator.poison.a": queue()}),
        [(OK, "poison queue", "")]),
    "nothing was ever a stray": ("stray-messages", {}, [(OK, "poison queue", "")]),
    "without a ledger there is no poison queue": (
        "stray-messages", {"poison_queue": ""}, [(UNSEEN, "poison queue", "without a ledger")]),
    # version
    "3.10 is new enough": (
        "broker-version", broker(version="3.10.0", enabled={"quorum_queue": True}),
        [(OK, "RabbitMQ 3.10.0", "it supports delays v2 and mode staged"),
         (WARNING, "RabbitMQ 3.10.0", "support ended: July 2023")]),
    "a release with known bugs": (
        "broker-version", broker(version="4.3.2"),
        [(OK, "RabbitMQ 4.3.2", "it supports"),
         (WARNING, "RabbitMQ 4.3.2", "without a leader when a node is replaced (#16652)")]),
    "a release without": ("broker-version", broker(version="4.3.5"),
                          [(OK, "RabbitMQ 4.3.5", "it supports")]),
    "a release that nobody has read about": ("broker-version", broker(version="5.0.0"),
                                             [(OK, "RabbitMQ 5.0.0", "it supports")]),
    "an old broker cannot hold delays of version 2": (
        "broker-version", {**OLD, "chosen_mode": Mode.DIRECT},
        [(REFUSED, "RabbitMQ 3.9.29", "use --delays v1 --mode direct")]),
    "an old broker cannot stage": (
        "broker-version", {**OLD, "version": V1}, [(REFUSED, "RabbitMQ 3.9.29", "staged need")]),
    "an old broker can do the old way": (
        "broker-version", {**OLD, "version": V1, "chosen_mode": Mode.DIRECT},
        [(OK, "RabbitMQ 3.9.29", "any version")]),
    "a flag that is off": (
        "broker-version", broker(enabled={"stream_queue": False, "quorum_queue": True}),
        [(REFUSED, "feature flag stream_queue", "rabbitmqctl enable_feature_flag stream_queue")]),
    "a version that cannot be read": ("broker-version", broker(version="new"),
                                      [(UNSEEN, "RabbitMQ new", "cannot be read")]),
    "a dispatcher without retries takes any version": (
        "broker-version", {**OLD, **WITHOUT_RETRIES},
        [(OK, "RabbitMQ 3.9.29", "any version is enough for a dispatcher")]),
    "a dispatcher with retries does not": (
        "broker-version", {**OLD, **DISPATCHING},
        [(REFUSED, "RabbitMQ 3.9.29", "dispatch.retry_delays need version 3.10 or newer; upgrade "
          "the broker, or set dispatch.retry_delays = []")]),
    # room
    "less room than is needed": ("capacity", room(NEEDED - 1), [(REFUSED, "disk", "")]),
    "not twice the room": ("capacity", room(2 * NEEDED - 1), [(WARNING, "disk", "")]),
    "twice the room": ("capacity", room(2 * NEEDED), [(OK, "disk", "")]),
    "room that nobody tells is needed all the same": (
        "capacity", {"previews": [ROWS], **broker(left=NO_API)},
        [(UNSEEN, "disk", "1 000 messages need about 3 MiB; no management API")]),
    "part of the rows is no estimate": (
        "capacity", {"previews": [ROWS, preview(is_complete=False)]}, [(UNSEEN, "disk", "all")]),
    "nor are bodies that nobody measured": (
        "capacity", {"previews": [replace(ROWS, unmeasured=2)]}, [(UNSEEN, "disk", "of 2 rows")]),
    "nor is no row at all": ("capacity", {"previews": None}, [(UNSEEN, "disk", "")]),
    # policies
    **{
        f"{key} of a policy is refused": (
            "policies", broker(rules={"a": policy(**{key: 1, "ha-mode": "all"})}),
            [(REFUSED, "policy all", f"it sets {key} on a")])
        for key in sorted(HARMFUL)
    },
    "a blanket policy is one finding": (
        "policies", broker(rules={name: policy(overflow="x", expires=1) for name in "ba"}),
        [(REFUSED, "policy all", "it sets expires, overflow on a and 1 more")]),
    **{
        f"{key} {value} is harmless": (
            "policies", broker(rules={"a": policy(**{key: value})}), [(OK, "policies", "")])
        for key, value in [
            ("queue-leader-locator", "balanced"), ("delivery-limit", 10**5), ("delivery-limit", -1)]
    },
    "exchanges that divert, by what makes them": (
        "policies",
        broker(alternates={"b": ["policy all", "its own argument"], "a": ["policy all"]}),
        [(REFUSED, "alternate-exchange", "by its own argument, messages that b cannot route"),
         (REFUSED, "alternate-exchange", "by policy all, messages that a and 1 more cannot")]),
    # the queues of timeout managers
    "queues that nobody else consumes": (
        "satellite-queues", satellites(),
        [(OK, STORE, "no other consumer; 7 messages ready"), (OK, CONTROL, ""),
         (OK, "error", "")]),
    "a missing store queue": (
        "satellite-queues", satellites(**{STORE: None}),
        [(REFUSED, STORE, "queue in [[endpoints]]"), (OK, CONTROL, ""), (OK, "error", "")]),
    "a missing error queue": (
        "satellite-queues", satellites(error=None),
        [(OK, STORE, ""), (OK, CONTROL, ""), (REFUSED, "error", "dispatch.error_queue")]),
    "other consumers": (
        "satellite-queues", satellites(**{STORE: queue(2), CONTROL: queue(1)}),
        [(WARNING, STORE, "it already has 2 consumers: the endpoint's own timeout manager"),
         (WARNING, CONTROL, "or another migrator"), (OK, "error", "")]),
    **{
        f"a delivery limit of {limit}": (
            "satellite-queues",
            {"satellites": [SATELLITES], **broker(
                probes=SATELLITE_QUEUES, rules={STORE: policy(**{"delivery-limit": limit})})},
            [(OK, STORE, ""), (OK, CONTROL, ""), *told, (OK, "error", "")])
        for limit, told in {20: [(WARNING, STORE, "20 redeliveries")], 10**5: [], -1: []}.items()
    },
    "who sends what is nearly due beside us": (
        "satellite-queues", {**NEAR_DUE, **broker(probes={CONTROL: queue(1)})},
        [(WARNING, CONTROL, "--near-due leave")]),
    # the delays
    "absent delays, with the command that makes them": (
        "delay-entities",
        broker(entities=DelayEntities(missing=list("abcde"), different={}, not_checked=())),
        [(REFUSED, "delays v2",
          "missing: a, b, c and 2 more; migrator delays create --delays v2")]),
    "different and unknown entities": (
        "delay-entities",
        broker(entities=DelayEntities(
            missing=["x"], different={"q": "x-overflow"}, not_checked=["why"] * 3)),
        [(REFUSED, "delays v2", "missing: x"), (REFUSED, "q", "x-overflow"),
         (UNSEEN, "delays v2", "why; and 2 more")]),
    "hanging messages, by level": (
        "stuck-levels", broker(hanging={8: 32, 0: 31}),
        [(WARNING, "nsb.v2.delay-level-00", "31 expired messages are still in the level"),
         (WARNING, "nsb.v2.delay-level-08", "freezes for every endpoint")]),
    # where rows go
    "bound destinations, with the rows of all endpoints": (
        "destinations", {"previews": TWO, **broker(probes=BOTH, bound=BOTH)},
        [(OK, "Billing", "2 rows"), (OK, "Sales", "6 rows; bound to the delays")]),
    "unbound destinations are bound by a run": (
        "destinations", {"previews": TWO, **broker(probes=BOTH)},
        [(OK, "Billing", "`migrator run` binds it"), (OK, "Sales", "`migrator run` binds it")]),
    "unless that is forbidden": (
        "destinations", {"previews": TWO, "may_bind": False, **broker(probes=BOTH)},
        [(WARNING, "Billing", "2 rows will wait in the ledger"), (WARNING, "Sales", "")]),
    "rows for an unknown destination wait": (
        "destinations", {"previews": TWO[1:], **broker(probes={"Sales": queue()})},
        [(WARNING, "Billing", "it has no queue: 2 rows will wait in the ledger until it has"),
         (OK, "Sales", "")]),
    "an endpoint without any destination is in the wrong virtual host": (
        "destinations", {"previews": TWO[:1], "vhost": "shop"},
        [(REFUSED, "Sales", "virtual host 'shop' has a queue for none of its destinations: "
          "Sales; check that broker.url"), (WARNING, "Sales", "")]),
    "unless a run saw it missing beside others": (
        "destinations", {"previews": TWO[:1], "held": {QueueName("Sales")}},
        [(WARNING, "Sales", "")]),
    "no destination at all": ("destinations", {"previews": [preview()]}, []),
    "bindings that nobody saw": (
        "destinations", {"previews": TWO, **broker(probes=BOTH, bound=NO_API)},
        [(UNSEEN, "Billing", "its queue exists"), (UNSEEN, "Sales", str(NO_API))]),
    "rows that are sent when due need no binding": (
        "destinations",
        {"previews": [preview({"Sales": 4, "Gone": 3})], "modes": {"Sales": DISPATCH},
         "may_bind": False, **broker(probes={"Sales": queue()}, bound=NO_API)},
        [(WARNING, "Gone", "it has no queue: 3 rows would wait until it has"),
         (OK, "Sales", "4 rows; sent to it when due")]),
    "queues of replies that are gone, most rows first": (
        "reply-queues",
        {"previews": [preview(reply_queues={"Web.OLD1": 2, "Sales": 5}),
                      preview(reply_queues={"Web": 3})], **broker(probes=BOTH)},
        [(WARNING, "Web", "3 rows"), (WARNING, "Web.OLD1", "2 rows")]),
    "no more than twenty are named": (
        "reply-queues", {"previews": [preview(reply_queues={f"W{n:02}": 1 for n in range(25)})]},
        [*((WARNING, f"W{n:02}", "") for n in range(20)),
         (WARNING, "replies", "5 more of these queues do not exist, for 5 rows")]),
    "a destination that catches another's messages": (
        "suffix-collisions", colliding("Sales", "My.Sales"),
        [(WARNING, "My.Sales", "messages for it also reach Sales: its rows wait")]),
    "somebody else's name that does": (
        "suffix-collisions", colliding("My.Sales", bound=["Sales"]),
        [(WARNING, "My.Sales", "suffix-collision")]),
    "and is accepted": (
        "suffix-collisions", colliding("My.Sales", bound=["Sales"], accepts_suffix_collisions=True),
        [(WARNING, "My.Sales", "")]),
    "without the management API only known names are compared": (
        "suffix-collisions", colliding("Sales", "My.Sales", bound=NO_API),
        [(UNSEEN, "names of other bindings", ""), (WARNING, "My.Sales", "")]),
    "a full queue, a small one and one with room": (
        "full-queues", {"previews": TWO, **broker(limits=[
            limit("Sales", 10, 10), limit("Billing", 9, 10), limit("Billing", 0, 10**6, "bytes")])},
        [(WARNING, "Sales", "10 of 10 messages; there are 6 rows for it, which wait"),
         (WARNING, "Billing", "9 of 10 messages; there are 2 rows"),
         (OK, "Billing", "0 of 1 000 000 bytes")]),
    "destinations that are parked": (
        "parked-destinations", {"parked": [parked(f"Q{n:02}") for n in range(23)]},
        [*((WARNING, f"Q{n:02}", "rows of Sales wait for it since 2") for n in range(20)),
         (WARNING, "destinations", "rows wait for 3 more")]),
    "no destination is parked": ("parked-destinations", {}, [(OK, "destinations", "")]),
    "no queue that rejects": ("full-queues", {"previews": TWO}, [(OK, "destinations", "")]),
    "only the management API knows limits": (
        "full-queues", {"previews": TWO, **broker(limits=NO_API)}, [(UNSEEN, "full-queues", "")]),
    "an exchange that does not lead on": (
        "exchange-types",
        {"previews": TWO, **broker(kinds={"Sales": "direct", "Billing": "fanout"})},
        [(WARNING, "Sales", "of type direct, not fanout")]),
    "exchanges that lead on": (
        "exchange-types", {"previews": TWO, **broker(kinds={"Sales": "x-random"})},
        [(OK, "destinations", "")]),
    "without delays types do not matter": (
        "exchange-types", {"modes": {"Sales": DISPATCH}, "endpoint_names": ["Sales"]},
        [(OK, "native delays", "")]),
    **{
        f"without rows nobody knows: {name}": (name, {"previews": None, **MINUTE},
                                               [(UNSEEN, subject, "")])
        for name, subject in {
            "destinations": "destinations", "suffix-collisions": "destinations",
            "exchange-types": "destinations", "full-queues": "destinations",
            "row-contents": "rows",
            "reply-queues": "replies", "unattended-rows": "rows due soon"}.items()
    },
    # rows that nobody sends
    "a running timeout manager sends what is left": (
        "unattended-rows", {"previews": LEFT_5, **MINUTE, **broker(probes={CONTROL: queue(1)})},
        [(OK, "Sales", "sends the 5 rows")]),
    "a discovered table shows dots as underscores": (
        "unattended-rows",
        {"previews": [preview(endpoint="Sales_Orders")], **MINUTE,
         **broker(probes={"Sales.Orders.TimeoutsDispatcher": queue(2)})},
        [(OK, "Sales_Orders", "")]),
    "an endpoint's queue may have another name": (
        "unattended-rows", {"previews": LEFT_5, "queues": {"Sales": "Out"}, **MINUTE,
                            **broker(probes={CONTROL: queue(1)})},
        [(WARNING, "Sales", "nothing consumes Out.TimeoutsDispatcher")]),
    "rows that nobody will send": (
        "unattended-rows", {"previews": LEFT_5, **MINUTE, **broker(probes={CONTROL: queue()})},
        [(WARNING, "Sales", "5 rows overdue or due soon would stay in the store: nothing consumes "
          "Sales.TimeoutsDispatcher; start its timeout manager, or use --cutoff 0s")]),
    "before there are such rows": (
        "unattended-rows", {"previews": [preview({"Sales": 1})], **MINUTE},
        [(WARNING, "Sales", "while migrator is down")]),
    "with near-due dispatch migrator sends them": (
        "unattended-rows", {"previews": LEFT_5, "sends_near_due": True, **MINUTE},
        [(OK, "rows due soon", "")]),
    "without a cutoff migrator sends them": (
        "unattended-rows", {"previews": LEFT_5}, [(OK, "cutoff", "")]),
    # clocks
    "1.9 s are tolerated": ("clock-skew", skew(1.9), [(OK, "clocks", "1.9 s ahead of")]),
    "2 s are told": ("clock-skew", skew(2), [(WARNING, "clocks", "2.0 s ahead of")]),
    "a minute is told": ("clock-skew", skew(-60), [(WARNING, "clocks", "60.0 s behind")]),
    "more is refused": ("clock-skew", skew(61), [(REFUSED, "clocks", "61.0 s ahead of")]),
    "no row shows its time zone": ("due-times", zone(), [(OK, SALES.source, "no row shows")]),
    "rows are in another zone": (
        "due-times", zone(*[1] * 5),
        [(REFUSED, SALES.source, "of 5 sampled rows, 5 have a due time +1 h")]),
    "one row is": (
        "due-times", zone(*[0] * 9, 1), [(WARNING, SALES.source, "of 10 sampled rows, 1 has")]),
    # store and ledger
    "a store without any table": (
        "endpoints", {"store": FakeStore(endpoints=())}, [(REFUSED, "store", "store.schema")]),
    "each unknown endpoint": (
        "endpoints", {"endpoint_names": ["Nobody", "Sales", "Else"]},
        [(REFUSED, "Nobody", "it has: Sales"), (REFUSED, "Else", "")]),
    "no ledger": ("ledger", {"ledger": ledger(verify=LedgerMissing("none"))},
                  [(REFUSED, "ledger", "none; migrator db upgrade")]),
    "a cloned ledger": ("ledger", {"ledger": ledger(verify=LedgerCloned("of another"))},
                        [(REFUSED, "ledger", "of another; `migrator db adopt`, ")]),
    "a failed-over database": (
        "ledger", {"ledger": ledger(verify=DatabaseFailedOver("another server"))},
        [(REFUSED, "ledger", "another server; migrator db adopt --after-failover")]),
    "a database that forgets": (
        "ledger", {"ledger": ledger(lossy_setting="some setting is 2")},
        [(OK, "ledger", ""), (WARNING, "ledger", "some setting is 2")]),
    "a standby that may be behind": (
        "ledger", {"ledger": ledger(standbys_behind=["walreceiver"])},
        [(OK, "ledger", ""), (WARNING, "standbys", "walreceiver asynchronous")]),
    "a server that hides its standbys": (
        "ledger",
        {"ledger": ledger(standbys_behind=NO_API), "version": V1, "other_commits": COMMITS},
        [(OK, "ledger", ""),
         (WARNING, "batch 7", "--delays v2"),
         (UNSEEN, "ledger", "")]),
    "commits of other delays are no concern of a dispatcher": (
        "ledger", {**DISPATCHING, "other_commits": COMMITS}, [(OK, "ledger", "")]),
    "what the store remarks": (
        "legacy-table",
        {"store": FakeStore(remarks=[StoreRemark(subject="x", text="no index", remedy="make")])},
        [(WARNING, "x", "no index; make")]),
    "what nobody can claim, with the reason and an id": (
        "legacy-table",
        {"previews": [preview(unclaimable={"odd": Quarantinable(count=2, examples=["x-1"])})]},
        [(OK, "store", ""), (WARNING, "Sales", "2 timeouts are never claimed, odd; such as x-1")]),
    "rows that a receiver could not take, with the reason, an id and what was found": (
        "row-contents",
        {"previews": [preview(quarantine={Reason.HEADERS_TOO_LARGE: TOO_LARGE}),
                      preview(sample=Sample(quarantine={Reason.NO_DESTINATION: TOO_LARGE}))]},
        [(WARNING, "Sales", "2 rows would go to quarantine (headers-too-large): the headers "
          "together leave no room in one AMQP frame, of the size that the broker agreed on with "
          "migrator (a receiver may have asked for less), for what the delays add; the receiver's "
          "connection would break; such as x-1: 9 bytes; correct them in the store"),
         (WARNING, "Sales", "of a sample, 2 rows would go to quarantine (no-destination)")]),
    "addresses with a machine, the one with most rows first": (
        "row-contents",
        {"previews": [preview(machine_addresses=Counter({"A@X": 1, "Billing@APP01": 3}))]},
        [(WARNING, "Sales", "4 rows with a machine in the address, as version 5 wrote it: "
          "messages for Billing@APP01 go to the queue Billing; a timeout manager of version 6 or 7 "
          "fails to send it; if another queue is meant, name it with --map Billing=…")]),
    "a right is missing": (
        "rights", {"store": FakeStore(trial_claim=StoreError("no DELETE"))},
        [(REFUSED, SALES.source, "no DELETE; let `migrator db grants`")]),
    "a store that went away says nothing of rights": (
        "rights", {"store": FakeStore(trial_claim=StoreUnavailable("gone"))},
        [(UNSEEN, "rights", "gone")]),
    "a store that is gone": (
        "store-reachable", {"store": FakeStore(failure=StoreUnavailable("timed out"))},
        [(REFUSED, "store", "cannot be reached: timed out")]),
    "a store that refuses": (
        "store-reachable", {"store": FakeStore(failure=StoreError("wrong password"))},
        [(REFUSED, "store", "refuses: wrong password")]),
    "traces of the vendor's tool in store or broker": (
        "vendor-run",
        {"store": VENDORS, **broker(probes={STAGING_QUEUE: queue()})},
        [(REFUSED, "vendor's tool", "a run"), (REFUSED, STAGING_QUEUE, "with 0 messages")]),
    "what the store says of it, though the broker is gone": (
        "vendor-run",
        {"store": VENDORS, **broker(failure=TargetUnavailable("gone"))},
        [(REFUSED, "vendor's tool", "a run"), (UNSEEN, "vendor-run", "gone")]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "given", "expected"), CASES.values(), ids=CASES.keys())
def test_before_a_run(name: str, given: Given, expected: Expected) -> None:
    """Whoever calls ``migrator preview`` is told this."""
    check(found(name, **given), expected)


LEVEL_1 = "nsb.v2.delay-level-01"
FIND = "find the queue that was deleted"
KNOWN = FakeHandOvers(["Billing", "Gone"])
MENDED = binding("Gone", is_gone=True).remedy
BLAMED = f"10 timeouts for Gone became due in the past hour, and its queue does not exist: {MENDED}"


def held(*looks: object, **more: Any) -> Given:
    """Return a broker with so many held messages at each look."""
    first, *later = looks
    return broker(hanging=first, later=later, **more)


OF_DELAYS: Mapping[str, tuple[str, Given, Expected]] = {
    "a bound name that catches another's messages": (
        "bound-names", broker(bound=["My.Sales", "Sales", "Resales"]),
        [(REFUSED, "My.Sales", "also reach Sales; give one of the two another name; if no "
          "sender delays messages to Sales, remove the binding #.Sales of exchange nsb.v2")]),
    "that is accepted": (
        "bound-names",
        {"accepts_suffix_collisions": True, **broker(bound=["My.Sales", "Sales"])},
        [(WARNING, "My.Sales", "")]),
    # levels that stand still
    "what does not move": ("frozen-levels", held({1: 20}, {1: 20}), [(REFUSED, LEVEL_1, FIND)]),
    "and of which more comes": ("frozen-levels", held({1: 20}, {1: 60}), [(REFUSED, LEVEL_1, "")]),
    "too many to let others pass": (
        "frozen-levels", held({1: 60}, {1: 40}),
        [(REFUSED, LEVEL_1, "at least 40 expired messages stayed in the level for 10 seconds, and "
          "no queue takes them; the level is frozen for every endpoint")]),
    "what may be on its way": ("frozen-levels", held({1: 20}, {1: 3}), [(WARNING, LEVEL_1, "")]),
    "what has passed": ("frozen-levels", held({1: 20}, {}), [(OK, "levels", "")]),
    "levels that nobody tells": ("frozen-levels", held(NO_API), [(UNSEEN, "frozen-levels", "")]),
    "or not any more": ("frozen-levels", held({1: 40}, NO_API), [(UNSEEN, "frozen-levels", "")]),
    "the destination to blame, and what mends it": (
        "frozen-levels", {"hand_overs": KNOWN, **held({1: 40}, gone=["Gone"])},
        [(REFUSED, LEVEL_1, BLAMED)]),
    "nobody to blame": (
        "frozen-levels", {"hand_overs": KNOWN, **held({1: 40})}, [(REFUSED, LEVEL_1, FIND)]),
    "no store to ask": (
        "frozen-levels", {"hand_overs": None, **held({1: 40})}, [(REFUSED, LEVEL_1, FIND)]),
    "no ledger to ask": (
        "frozen-levels",
        {"hand_overs": FakeHandOvers(failure=LedgerMissing("none")), **held({1: 40})},
        [(REFUSED, LEVEL_1, FIND)]),
    # leaders
    "levels that are led": (
        "level-leaders", broker(kept=[members("l0", "a", "abc"), members("l1", "b", "abc")]),
        [(OK, "levels", "a leads 1, b leads 1; members of each: 3, all running")]),
    "levels of one size and another": (
        "level-leaders", broker(kept=[members("l0", "a", "abc"), members("l1", "a", "a", of="a")]),
        [(OK, "levels", "a leads 2; members of each: 1 to 3, all running")]),
    "classic queues, which have none": (
        "level-leaders", broker(kept=[]), [(OK, "levels", "no quorum queues")]),
    "a member that does not run": (
        "level-leaders", broker(kept=[members("l0", "a", "ab"), members("l1", "b", "ab")]),
        [(WARNING, "l0, l1", "members: a, b, c; running: a, b; start c; if the node is up, run "
          "there: rabbitmqctl eval \"[ra:restart_server(quorum_queues, {P, node()}) || "
          "P <- ['%2F_l0', '%2F_l1']].\"")]),
    "a leader that the broker names though it is gone": (
        "level-leaders", broker(kept=[members("l0", "c", "ab")]),
        [(REFUSED, "l0", "no leader, so no message enters or leaves; members: a, b, c; running: "
          "a, b; start c")]),
    "too few to elect one": (
        "level-leaders", broker(kept=[members("l0", "a", "a"), members("l1", "b", "abc")]),
        [(REFUSED, "l0", "running: a; start b, c")]),
    "none at all": (
        "level-leaders", broker(kept=[members("l0", "", "")]),
        [(REFUSED, "l0", "running: none; start a, b, c")]),
    "none elected, though all run": (
        "level-leaders", broker(kept=[members("l0", "", "abc")]),
        [(REFUSED, "l0", "running: a, b, c; start a, b, c; if")]),
    "leaders that only the API could name": (
        "level-leaders", broker(kept=NO_API), [(UNSEEN, "level-leaders", "")]),
    # ways out
    "what was handed over for a destination that is gone": (
        "ways-out", {"hand_overs": KNOWN, **broker(bound=["Sales"], gone=["Gone"])},
        [(REFUSED, "Gone", "and 10 timeouts handed over for it are due 2026-03-10 09:30:00 to "
          f"2026-03-10 09:30:00 UTC; {MENDED}")]),
    "a bound name that leads nowhere": (
        "ways-out", broker(bound=["Sales"], gone=["Sales"]), [(WARNING, "Sales", "")]),
    "without a store only bound names are looked at": (
        "ways-out", {"hand_overs": None, **broker(bound=["Sales"])},
        [(UNSEEN, "handed-over timeouts", "no store"), (OK, "destinations", "")]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "given", "expected"), OF_DELAYS.values(), ids=OF_DELAYS.keys())
def test_of_the_delays(name: str, given: Given, expected: Expected) -> None:
    """Whoever calls ``migrator delays show`` is told this."""
    check(found_of_delays(name, **given), expected)


def test_levels_are_looked_at_for_as_long_as_was_asked() -> None:
    """In steps, so that a short gap is noticed; nobody waits when nothing is held."""
    waits: list[float] = []
    found_of_delays("frozen-levels", wait=waits.append)
    assert waits == []
    found_of_delays("frozen-levels", wait=waits.append, broker=FakeBroker(hanging={1: 40}))
    assert waits == [2.0] * 5


def test_only_what_was_due_lately_is_to_blame_for_a_frozen_level() -> None:
    """And what is due from now on has to find its way."""
    hand_overs, hour = FakeHandOvers(["Gone"]), timedelta(hours=1)
    found_of_delays("frozen-levels", hand_overs=hand_overs, **held({1: 40}))
    found_of_delays("ways-out", hand_overs=hand_overs)
    assert hand_overs.asked == [
        {"due_from": NOW - hour, "due_until": NOW},
        {"due_from": NOW - hour},
    ]


def test_all_that_policies_could_change_is_asked_for() -> None:
    """Levels, delivery, and our own queues and exchanges, whether they exist or not."""
    broker = FakeBroker()
    found("policies", broker=broker)
    # of a lane, the staging exchange has the name of its queue
    assert len(broker.asked) == 28 + 2 + 28 + 1 + 1 + 2
    assert {*OWN_QUEUES, "nsb.v2.delay-delivery", "migrator.router.v2"} < set(broker.asked)
