"""``migrator db adopt``: what is looked at before a ledger goes on in another database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.app import App
from migrator.app.preflight import satellites
from migrator.cli.output import say, write_json
from migrator.cli.session import Session, confirmed
from migrator.errors import PreflightRefused
from migrator.ledger import version
from migrator.ledger.adoption import Whereabouts, told_holders
from migrator.nservicebus.satellites import timeouts_queue
from migrator.nservicebus.timeouts import Lane, QueueName
from migrator.rabbitmq.names import guard_queue

_NOT_SEEN = (
    "a daemon in mode direct on the former database is not seen on the broker: be sure that "
    "nobody can start it there again"
)


def adopt_ledger(session: Session, app: App, *, yes: bool) -> None:
    """Give a copied ledger an id of its own, and say which.

    Raises:
        PreflightRefused: Somebody works on it, or it has another version. Nothing was changed.
    """
    version.check_head(app.engine, app.tables)
    found = app.adoption.look()
    if not found.is_moved:
        say(
            f"ledger {found.ledger_id} is where it was created, in {found.present}, as far as the "
            "database tells: only if this is a copy all the same shall it have a new id"
        )
    what = "the ledger would get a new id, and batches under way would become doubtful"
    confirmed(yes=yes, what=what)
    adopted = app.adoption.adopt()
    if session.wants_json:
        write_json("db-adopt", {"ledger": adopted})
    else:
        say(f"this ledger is {adopted} now")


def keep_ledger(session: Session, app: App, *, yes: bool, is_dry_run: bool) -> None:
    """Let a moved ledger go on under its own id.

    Raises:
        PreflightRefused: Somebody works on it, or its books have gaps; tells everything at once.
    """
    version.check_head(app.engine, app.tables)
    found = app.adoption.look()
    if not found.is_moved:
        _tell(session, found, is_done=False)
        return
    refusals, remarks = [*_refusals(app, found)], [*_remarks(app)]
    if is_dry_run:
        _tell(session, found, refusals=refusals, remarks=remarks, is_done=False)
    if refusals:
        raise PreflightRefused("; ".join(refusals) + ". Nothing was changed")
    if is_dry_run:
        return
    if not yes:
        _say_remarks(remarks)
    confirmed(
        yes=yes,
        what=f"ledger {found.ledger_id} of {found.created_in} would go on in {found.present}, and "
        "nobody may ever work on the former again",
    )
    _tell(session, app.adoption.keep(), remarks=remarks, is_done=True)


def _refusals(app: App, found: Whereabouts) -> Iterator[str]:
    """Yield what stands against it: here, in the books, and on the broker."""
    if found.holders:
        yield told_holders(found.holders)
    total, gaps = app.side.verifications.gaps((), at_most=1)
    if total:
        yield (
            f"{total} batches have other rows than they should ({gaps[0].batch} is the first), so "
            "this is not all of the former database: use `migrator db adopt` without --moved"
        )
    yield from held_elsewhere(app, found)


def held_elsewhere(app: App, found: Whereabouts) -> Iterator[str]:
    """Yield who works on the ledger as far as the broker tells."""
    guards = {guard_queue(found.ledger_id, lane): lane for lane in lanes_of(app, found)}
    timeouts = [timeouts_queue(QueueName(each.queue)) for each in satellites(app.settings, ())]
    probes = app.broker_facts.queues([*guards, *timeouts])
    for name, lane in guards.items():
        if probes[name] is not None:
            yield (
                f"a process holds lane {lane} on the broker ({name}), so the former database is "
                "still worked on: stop it there"
            )
    for name in timeouts:
        if (probe := probes[name]) is not None and probe.consumers:
            yield f"{probe.consumers} consume {name}: stop them, they may store elsewhere"


def _remarks(app: App) -> Iterator[str]:
    """Yield what a database that was moved as a whole, at one moment, has only if it had it before.

    Nothing of a document store, which stays where it is.
    """
    if app.settings.store.kind.has_own_ledger:
        return
    for each in app.side.verifications.balances():
        if each.in_store is None:
            yield (
                f"{each.source} of {each.endpoint} is not here: unless it was dropped, its "
                "timeouts were left behind"
            )
    total, first = app.side.verifications.in_both_places((), at_most=1)
    if total:
        yield (
            f"{total} timeouts are in their table and in the ledger ({first[0].timeout_id} is the "
            "first): unless they were before, table and ledger were copied at different moments, "
            "and what was put back in between is in neither"
        )


def lanes_of(app: App, found: Whereabouts) -> Sequence[Lane]:
    """Return lanes that somebody may hold: the ledger's, and those of the settings."""
    return sorted({*found.lanes, *map(Lane, range(app.settings.handover.lanes))})


def _tell(
    session: Session,
    found: Whereabouts,
    *,
    refusals: Sequence[str] = (),
    remarks: Sequence[str] = (),
    is_done: bool,
) -> None:
    if session.wants_json:
        document = {
            "ledger": found.ledger_id,
            "created_in": found.created_in,
            "present": found.present,
            "is_moved": found.is_moved,
            "batches": dict(found.batches),
            "refusals": list(refusals),
            "remarks": list(remarks),
            "is_done": is_done,
        }
        write_json("db-adopt", document)
        return
    if not found.is_moved:
        say(f"ledger {found.ledger_id} is where it was created, in {found.present}: nothing to do")
        return
    say(f"ledger {found.ledger_id} was created in {found.created_in}, and is in {found.present}")
    under_way = ", ".join(f"{count} {state}" for state, count in sorted(found.batches.items()))
    say(f"batches under way: {under_way or 'none'}")
    _say_remarks(remarks)
    if is_done:
        say("it goes on here under the same id; the next `migrator run` finishes what is under way")
    say(f"not checked: {_NOT_SEEN}")


def _say_remarks(remarks: Sequence[str]) -> None:
    for each in remarks:
        say(f"look at this first: {each}")
