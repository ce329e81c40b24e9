"""Checks of the legacy database and of the ledger in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from migrator.errors import (
    DatabaseFailedOver,
    LedgerCloned,
    LedgerMissing,
    RowsKept,
    StoreError,
    StoreLocked,
    StoreUnavailable,
    UnknownEndpoint,
)
from migrator.ledger.clock import SKEW_TOLERATED
from migrator.ledger.work import Clock, StoreEndpoint
from migrator.nservicebus.headers import queue_part
from migrator.preflight.context import (
    MOVING,
    Context,
    Finding,
    hidden,
    not_checked,
    ok,
    refused,
    warning,
)
from migrator.stores.due_times import DueTimeReader, DueTimeRules
from migrator.stores.endpoints import EndpointPreview, present_endpoints
from migrator.stores.ports import Store
from migrator.text import counted

if TYPE_CHECKING:
    from migrator.preflight.queries import LedgerFacts

SKEW_REFUSED: Final = timedelta(minutes=1)
STAGING_QUEUE: Final = "TimeoutMigrationTool_Staging"
_NONE_READ: Final = not_checked("store", "no table of the endpoints could be read")
UNREADABLE: Final = "legacy-table"
"""The name of what ``unreadable`` returns, which is no check."""
_RIGHTS_REMEDY: Final = "let `migrator db grants` print what the user needs"
_KEPT_REMEDY: Final = "a claim moves rows, so the table must allow that; nothing was changed"
_FINISH: Final = "finish that run, or abort it with the vendor's tool"


def clock_skew(context: Context) -> Iterator[Finding]:
    """Do this machine and the database agree on the time?

    Warn when the two clocks differ by two seconds or more; refuse above a minute.

    Delays follow the database's clock; people compare them with this machine's.
    """
    skew = context.clock.now() - context.wall_clock()
    seconds = skew.total_seconds()
    side = "ahead of" if seconds > 0 else "behind"
    text = f"the database is {abs(seconds):.1f} s {side} this machine"
    if abs(skew) < SKEW_TOLERATED:
        yield ok("clocks", text)
    else:
        finding = refused if abs(skew) > SKEW_REFUSED else warning
        remedy = "synchronise both with NTP: a wrong database clock makes messages early or late"
        follows = "due times follow the database; a run waits unless the broker's clock agrees"
        yield finding("clocks", f"{text}; {follows}", remedy)


def due_times(context: Context) -> Iterator[Finding]:
    """Are due times read in the zone they were written in? If not, rows go out hours early or late.

    Compare a sample of each endpoint's due column with the rows' own headers.
    """
    if not (endpoints := _readable(context)):
        yield _NONE_READ
    yield from due_times_of(context.store, endpoints, context.clock, context.due_times)


def due_times_of(
    store: Store, endpoints: Sequence[StoreEndpoint], clock: Clock, rules: DueTimeRules
) -> Iterator[Finding]:
    due_times = DueTimeReader(store, clock, rules)
    for endpoint in endpoints:
        try:
            reading = due_times.read(endpoint)
        except StoreError as exc:
            if not exc.is_of_source:
                raise
            yield unreadable(endpoint, exc)
            continue
        if reading.is_refused:
            text, remedy = reading.text, reading.remedy
            yield refused(endpoint.source, text, remedy, endpoint=endpoint.name)
        elif reading.shifted:
            yield warning(endpoint.source, reading.text, reading.remedy)
        else:
            unknown = f"no row shows its time zone; due times are read as {rules.time_zone}"
            known = counted(
                reading.comparable,
                "sampled row is due when its header says",
                "sampled rows are due when their headers say",
            )
            yield ok(endpoint.source, known if reading.comparable else unknown)


def _readable(context: Context) -> Sequence[StoreEndpoint]:
    found = present_endpoints(context.store, context.endpoint_names)
    return [each for each in found if each.name not in context.unreadable]


def unreadable(endpoint: StoreEndpoint, why: StoreError) -> Finding:
    remedy = (
        "find the transaction that locks the table, and end it"
        if isinstance(why, StoreLocked)
        else "restore the table and its rights; `migrator db grants` prints what the user needs"
    )
    found = refused(endpoint.source, str(why), remedy, endpoint=endpoint.name)
    return replace(found, check=UNREADABLE)


def endpoints(context: Context) -> Iterator[Finding]:
    """Does the store have the endpoints that were named, or any at all?

    Look up each endpoint; without names, any.
    """
    known = ", ".join(endpoint.name for endpoint in context.store.endpoints())
    unknown = [name for name in context.endpoint_names if not _has(context.store, name)]
    if not known and (unknown or not context.endpoint_names):
        yield refused("store", "it has no timeouts table", "check database and store.schema")
        return
    for name in unknown:
        yield refused(
            name,
            f"the store has no such endpoint: {_why_unknown(context.store, name)}; it has: {known}",
            "restore the table, correct the name, or set its table in [[endpoints]]",
            endpoint=name,
        )
    if not unknown:
        yield ok("store", f"it has timeouts of {known or 'no endpoint'}")


def _has(store: Store, name: str) -> bool:
    try:
        store.find(name)
    except UnknownEndpoint:
        return False
    except StoreError as exc:
        if not exc.is_of_source:
            raise
    return True


def _why_unknown(store: Store, name: str) -> str:
    try:
        store.read_anew(store.expected(name))
    except StoreError as exc:
        return str(exc)
    return "no table has that name"


def ledger(context: Context) -> Iterator[Finding]:
    """Is there a ledger of the version this program needs, created in this database?

    Refuse a ledger that is missing, of another version, or copied from another database.

    Warn of batches that only a run into other delays can finish, and of a database that may lose
    committed transactions, by its settings or by a failover.
    """
    try:
        text = context.ledger.verify()
    except LedgerMissing as exc:
        yield refused("ledger", str(exc), "migrator db upgrade")
    except LedgerCloned as exc:
        yield refused(
            "ledger", str(exc), "`migrator db adopt`, if the other database is gone for good"
        )
    except DatabaseFailedOver as exc:
        yield refused("ledger", str(exc), "migrator db adopt --after-failover --dry-run")
    else:
        yield ok("ledger", text)
        yield from _committing(context)
        yield from _durability(context.ledger)


def _committing(context: Context) -> Iterator[Finding]:
    for each in context.other_commits if context.delays is not None else ():
        yield warning(
            f"batch {each.batch}",
            f"its process has ended, and it goes to {each.place}: only a run there finishes it, "
            "and this one leaves it alone",
            f"`migrator run --once` there (`--delays {each.place.delays}`), or, if that broker is "
            f"gone, `migrator db resolve {each.batch} --as claimed`",
        )


def _durability(ledger: LedgerFacts) -> Iterator[Finding]:
    how = ledger.lossy_setting()
    if how is not None:
        yield warning(
            "ledger",
            f"{how}: if its machine fails, the database loses its last commits; rows handed over "
            "in them are then in the table again as well",
            f"SET GLOBAL {how.partition(' ')[0]} = 1, and in the server's settings",
        )
    if behind := ledger.standbys_behind():
        yield warning(
            "standbys",
            f"{', '.join(behind)} asynchronous: a failover loses the last commits, and rows "
            "handed over in them are then in the table again as well",
            "name one of them in synchronous_standby_names, or see docs/what-if.md: the "
            "database failed over to a replica",
        )


def legacy_table(context: Context) -> Iterator[Finding]:
    """Can the legacy tables be used as they are? A missing index makes each claim slow.

    Warn of missing indexes, unsure names of endpoints, rows of no endpoint and unclaimable ones.
    """
    found = context.store.remarks()
    for each in found:
        yield warning(each.subject, each.text, each.remedy)
    if not found:
        yield ok("store", "every index that is needed exists")
    for preview in context.previews_of(*MOVING) or ():
        for why, entry in sorted(preview.unclaimable.items()):
            yield warning(
                preview.endpoint,
                f"{counted(entry.count, 'timeout is', 'timeouts are')} never claimed, {why}; such "
                f"as {', '.join(entry.examples)}",
                "correct or remove them; they stay where they are",
            )


def rights(context: Context) -> Iterator[Finding]:
    """Does the user have the rights that claiming needs? Proved by doing it, and rolling back.

    Claim one row of each endpoint and roll back.
    """
    if not (endpoints := _readable(context)):
        yield _NONE_READ
    for endpoint in endpoints:
        try:
            context.store.trial_claim(endpoint)
        except StoreLocked as exc:
            yield unreadable(endpoint, exc)
        except StoreUnavailable:
            raise
        except RowsKept as exc:
            yield refused(endpoint.source, str(exc), _KEPT_REMEDY, endpoint=endpoint.name)
        except StoreError as exc:
            yield refused(endpoint.source, str(exc), _RIGHTS_REMEDY, endpoint=endpoint.name)
        else:
            yield ok(endpoint.source, "a claim went through and was rolled back")


def row_contents(context: Context) -> Iterator[Finding]:
    """Can each row be sent as it is, to its own address?

    Warn of rows that would go to quarantine, with the reason, and of rows that name a machine.
    """
    if context.previews is None:
        yield not_checked("rows", "they were not checked")
        return
    odd = [f for preview in context.previews_of(*MOVING) or () for f in _unfit(preview)]
    odd += [f for preview in context.previews for f in _of_machines(preview)]
    yield from odd or [ok("rows", "each one can be sent, to the address that it has")]


def _unfit(preview: EndpointPreview) -> Iterator[Finding]:
    sample = preview.sample
    of_sample = sample.quarantine if sample else {}
    for rows, entries in (("", preview.quarantine), ("of a sample, ", of_sample)):
        for reason, entry in sorted(entries.items()):
            meaning = reason.meaning[0].lower() + reason.meaning[1:].rstrip(".")
            yield warning(
                preview.endpoint,
                f"{rows}{counted(entry.count, 'row')} would go to quarantine ({reason}): {meaning}"
                f"; such as {', '.join(entry.examples)}: {entry.detail}",
                "correct them in the store before the run; after it they are in quarantine, see "
                "docs/reference/quarantine-reasons.md",
            )


def _of_machines(preview: EndpointPreview) -> Iterator[Finding]:
    addresses = preview.machine_addresses
    if addresses:
        first, _ = addresses.most_common(1)[0]
        queue = queue_part(first)
        yield warning(
            preview.endpoint,
            f"{counted(addresses.total(), 'row')} with a machine in the address, as version 5 "
            f"wrote it: messages for {first} go to the queue {queue}; a timeout manager of "
            "version 6 or 7 fails to send it",
            f"if another queue is meant, name it with --map {queue}=…",
        )


def store_reachable(context: Context) -> Iterator[Finding]:
    """Can the legacy database be reached, and does it accept the user? Two different findings.

    Connect, and list the tables.
    """
    try:
        context.store.endpoints()
    except StoreUnavailable as exc:
        yield refused(
            "store",
            f"it cannot be reached: {exc}",
            "check store.url, the network, and whether the database is running",
        )
    except StoreError as exc:
        yield refused("store", f"it answers, but refuses: {exc}", "check user, password and rights")
    else:
        yield ok("store", f"{context.store.kind}; it answers")


def vendor_run(context: Context) -> Iterator[Finding]:
    """Is the vendor's migration tool half-way through? Two tools that move the same rows lose some.

    Refuse while the vendor's tool has rows hidden in the store or messages in its queue.
    """
    unfinished = context.store.unfinished_vendor_runs()
    for text in unfinished:
        yield refused("vendor's tool", text, _FINISH)
    staging = context.broker.queues([STAGING_QUEUE])[STAGING_QUEUE]
    if staging is not None and staging.is_hidden:
        yield hidden(STAGING_QUEUE, "whether the vendor's tool has messages there is unknown")
    elif staging is not None:
        text = f"the vendor's staging queue exists, with {counted(staging.ready, 'message')}"
        yield refused(STAGING_QUEUE, text, _FINISH)
    if not unfinished and staging is None:
        yield ok("vendor's tool", "no unfinished run")
