"""``migrator db adopt``: a ledger's way to another database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import MARGIN, MAX_DEPTH, MAX_HOLD, DryRun, Margin, MaxDepth, MaxHold, Yes
from migrator.cli.output import say
from migrator.cli.session import Session, confirmed, session_of
from migrator.errors import ConfigError, ExitCode, PreflightRefused
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import timeouts_queue
from migrator.nservicebus.timeouts import Lane, QueueName
from migrator.rabbitmq.names import guard_queue
from migrator.text import counted

if TYPE_CHECKING:
    from migrator.app import App
    from migrator.delays.walk import WalkTerms
    from migrator.recovery.adoption import Whereabouts
    from migrator.recovery.lost_window import Settlement

verbs = new_group()


@verbs.command()
def adopt(
    context: typer.Context,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved",
            help="Not a copy: the complete database was moved here, and the former one is gone.",
        ),
    ] = False,
    after_failover: Annotated[
        bool,
        typer.Option(
            "--after-failover",
            help="A replica took over: settle what it lacks from what is in the delay levels.",
        ),
    ] = False,
    margin: Margin = MARGIN,
    max_hold: MaxHold = MAX_HOLD,
    max_depth: MaxDepth = MAX_DEPTH,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take over the ledger of a database that was copied or moved, or that failed over.

    A copy gets a new id, so that it never touches the queues of the original. Batches that were
    being handed over become doubtful: only the original knows whether they reached the broker.
    Refused while a process works on it here; leases that were copied expire by themselves.

    With --moved it keeps its id, and the next run finishes what is under way. Refused while a
    process works on it, here or, as far as the broker shows, at the former place. Only for a
    complete database: one without the last transactions (a replica that was behind) is a copy.

    With --after-failover it keeps its id as well. All levels are read: a row that is in the
    store again while its message waits there is recorded as handed over. Rows that were due by
    then and are found nowhere may have been delivered: they become doubtful, for `migrator db
    resolve`. --margin, --max-hold and --max-depth are as in `migrator rollback`. PostgreSQL only.

    Each needs the rights of `db upgrade`: the daemon's user may only read the ledger's id.

    Examples:
      migrator db adopt --yes
      migrator db adopt --moved --dry-run
      migrator db adopt --moved --yes
      migrator db adopt --after-failover --dry-run
      migrator db adopt --after-failover --yes
    """
    from migrator.cli.rollback import terms_of

    session = session_of(context)
    if moved and after_failover:
        raise ConfigError("--moved and --after-failover exclude each other")
    terms = terms_of(margin, max_hold, max_depth)
    with session.opened() as app:
        if after_failover:
            raise typer.Exit(settle_lost_window(session, app, terms, yes=yes, is_dry_run=dry_run))
        if moved:
            keep_ledger(session, app, yes=yes, is_dry_run=dry_run)
        else:
            adopt_ledger(session, app, yes=yes and not dry_run)


# ── what is looked at before a ledger goes on in another database ─────────────────────────────────

_NOT_SEEN = (
    "a daemon in mode direct on the former database cannot be seen on the broker: make sure that "
    "nobody can start it there again"
)


def adopt_ledger(session: Session, app: App, *, yes: bool) -> None:
    """Give a copied ledger an id of its own, and say which.

    Raises:
        PreflightRefused: Somebody works on it, or it has another version. Nothing was changed.
    """
    from migrator.app.commands import new_adoption
    from migrator.ledger import version

    version.check_head(app.engine, app.tables)
    found = new_adoption(app).look()
    if not found.is_moved:
        say(
            f"ledger {found.ledger_id} is where it was created, in {found.present}, as far as the "
            "database shows: give it a new id only if this is a copy after all"
        )
    what = "the ledger would get a new id, and batches under way would become doubtful"
    confirmed(yes=yes, what=what)
    adopted = new_adoption(app).adopt()
    session.tell("db-adopt", {"ledger": adopted}, f"this ledger is {adopted} now")


def keep_ledger(session: Session, app: App, *, yes: bool, is_dry_run: bool) -> None:
    """Let a moved ledger go on under its own id.

    Raises:
        PreflightRefused: A process works on it, or rows are missing; names everything at once.
    """
    from migrator.app.commands import new_adoption
    from migrator.ledger import version

    version.check_head(app.engine, app.tables)
    found = new_adoption(app).look()
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
        say("\n".join(_looks(remarks)))
    confirmed(
        yes=yes,
        what=f"ledger {found.ledger_id} of {found.created_in} would continue in {found.present}, "
        "and no process may ever work on the former database again",
    )
    _tell(session, new_adoption(app).keep(), remarks=remarks, is_done=True)


def _refusals(app: App, found: Whereabouts) -> Iterator[str]:
    """Yield what prevents it: here, in the ledger, and on the broker."""
    from migrator.recovery.adoption import told_holders

    if found.holders:
        yield told_holders(found.holders)
    total, gaps = app.side.verifications.gaps((), at_most=1)
    if total:
        yield (
            f"{counted(total, 'batch does', 'batches do')} not have the rows that belong there "
            f"(first: {gaps[0].batch}), so this is not the complete former database: use `migrator "
            "db adopt` without --moved"
        )
    yield from held_elsewhere(app, found)


def held_elsewhere(app: App, found: Whereabouts) -> Iterator[str]:
    """Yield who works on the ledger as far as the broker tells."""
    from migrator.app.preflight import satellites

    guards = {guard_queue(found.ledger_id, lane): lane for lane in lanes_of(app, found)}
    timeouts = [timeouts_queue(QueueName(each.queue)) for each in satellites(app.settings, ())]
    probes = app.broker_facts.queues([*guards, *timeouts])
    for name, lane in guards.items():
        if probes[name] is not None:
            yield (
                f"a process holds lane {lane} on the broker ({name}), so it still works on the "
                "former database: stop it there"
            )
    for name in timeouts:
        if (probe := probes[name]) is not None and probe.consumers:
            yield (
                f"{probe.consumers} consume {name}: stop them, they may store timeouts in another "
                "database"
            )


def _remarks(app: App) -> Iterator[str]:
    """Yield what a database that was moved as a whole, at one moment, has only if it had it before.

    Nothing of a document store, which stays where it is.
    """
    if app.settings.store.kind.has_own_ledger:
        return
    for each in app.side.verifications.balances():
        if each.in_store is None:
            yield (
                f"{each.source} of {each.endpoint} does not exist here: unless it was dropped, "
                "its timeouts were left behind"
            )
    total, first = app.side.verifications.in_both_places((), at_most=1)
    if total:
        yield (
            f"{counted(total, 'timeout is', 'timeouts are')} both in a table and in the ledger "
            f"(first: {first[0].timeout_id}): unless that was so before, table and ledger were "
            "copied at different times, and timeouts put back in between are in neither"
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
    session.tell("db-adopt", document, *_lines(found, remarks, is_done=is_done))


def _lines(found: Whereabouts, remarks: Sequence[str], *, is_done: bool) -> Iterator[str]:
    if not found.is_moved:
        yield f"ledger {found.ledger_id} is where it was created, in {found.present}: nothing to do"
        return
    yield (
        f"ledger {found.ledger_id} was created in {found.created_in}, and is now in {found.present}"
    )
    under_way = ", ".join(f"{count} {state}" for state, count in sorted(found.batches.items()))
    yield f"batches under way: {under_way or 'none'}"
    yield from _looks(remarks)
    if is_done:
        yield "it continues here under its id; the next `migrator run` finishes what is under way"
    yield f"not checked: {_NOT_SEEN}"


def _looks(remarks: Sequence[str]) -> Iterator[str]:
    yield from (f"check this first: {each}" for each in remarks)


# ── after a failover ──────────────────────────────────────────────────────────────────────────────


def settle_lost_window(
    session: Session, app: App, terms: WalkTerms, *, yes: bool, is_dry_run: bool
) -> ExitCode:
    """Settle what the database lost, and let the ledger go on; return how that ended.

    Raises:
        PreflightRefused: Somebody works, or the broker could not be seen to its end.
    """
    from migrator.app.commands import new_adoption, new_settlement
    from migrator.cli.rollback import watched
    from migrator.ledger import version

    version.check_head(app.engine, app.tables)
    app.accept_failover()
    why = new_adoption(app).why_failed_over()
    if why is None:
        _tell_settled(session, None, is_done=False)
        return ExitCode.DONE
    app.sql_side(wanted_for="settling a failover")
    found = new_adoption(app).look()
    if busy := [*held_elsewhere(app, found)]:
        raise PreflightRefused("; ".join(busy) + ". Nothing was changed")
    if not is_dry_run:
        confirmed(
            yes=yes, what="rows whose messages are in the levels would be recorded as handed over"
        )
    with watched() as progress:
        settled = new_settlement(app).run(
            _moved(app),
            lanes_of(app, found),
            terms,
            is_dry_run=is_dry_run,
            progress=progress,
        )
    _tell_settled(session, settled, is_done=not is_dry_run)
    return ExitCode.DOUBTFUL if settled.doubtful else ExitCode.DONE


def _moved(app: App) -> Sequence[StoreEndpoint]:
    """Return the endpoints whose rows of the window may have left; a dispatcher sends its own."""
    from migrator.config.work import EndpointMode

    given = {each.name: each.mode for each in app.settings.endpoints}
    return [
        each for each in app.store.endpoints() if given.get(each.name) is not EndpointMode.DISPATCH
    ]


def _tell_settled(session: Session, settled: Settlement | None, *, is_done: bool) -> None:
    counts = {} if settled is None else settled.counts
    document = {"has_failed_over": settled is not None, **counts, "is_done": is_done}
    session.tell("db-adopt-after-failover", document, *_settled_lines(settled, is_done=is_done))


def _settled_lines(settled: Settlement | None, *, is_done: bool) -> Iterator[str]:
    if settled is None:
        yield "the database is still on the same server: nothing to do"
        return
    met, under_way = settled.handed_over_from_store, settled.handed_over_from_batches
    stored = counted(
        met,
        "row is in the store while its message waits",
        "rows are in the store while their messages wait",
    )
    yield f"{stored} in the levels"
    wait = ("row of a batch under way waits", "rows of batches under way wait")
    yield f"{counted(under_way, *wait)} in the levels as well"
    have = ("row of a batch under way has", "rows of batches under way have")
    yield f"{counted(settled.not_sent, *have)} not been sent yet"
    if settled.nowhere:
        yield counted(
            settled.nowhere,
            "message of this ledger comes from a row that no longer exists here",
            "messages of this ledger come from rows that no longer exist here",
        )
    if settled.doubtful:
        named = "" if not is_done else f" (batches {', '.join(map(str, settled.doubtful_batches))})"
        yield (
            f"{counted(settled.doubtful, 'row')} due by now and found nowhere, maybe delivered"
            f"{named}; decide with `migrator db resolve`"
        )
    if is_done:
        yield "the ledger continues here; the next `migrator run` finishes what is under way"
    else:
        yield "nothing was changed"
