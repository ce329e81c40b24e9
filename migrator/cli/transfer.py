"""``migrator delays migrate`` and ``transfer``: to the newer delays, or to another broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import Yes, settings
from migrator.cli.output import progress, say, write_document, write_table
from migrator.cli.session import Session, confirmed, session_of, warn_of_password
from migrator.config.secrets import read_secret
from migrator.delays.routing import DelaysVersion, suffix_collisions
from migrator.errors import ConfigError, ExitCode, MigratorError
from migrator.text import counted, grouped
from migrator.transfer.rules import TransferRequest

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.transfer.move import Outcome

verbs = new_group()

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only count; everything goes back where it was.")
]
Distrust = Annotated[
    bool,
    typer.Option(
        "--distrust-headers",
        help="Use routing keys alone: never early whatever headers say, but late by up to what "
        "the key leaves uncertain.",
    ),
]


@verbs.command()
def migrate(
    context: typer.Context,
    dry_run: DryRun = False,
    distrust_headers: Distrust = False,
    yes: Yes = False,
) -> None:
    """Move waiting messages from the v1 delays into the v2 delays of the same broker.

    Killed at any moment, it loses nothing: run it again. At most the last 2000 messages may then
    exist twice, with the same message id. Never early.

    Examples:
      migrator delays migrate --dry-run
      migrator delays migrate --yes

    Exit codes: 0 nothing is left; 3 delays are missing; 4 broker unreachable;
      5 done, but messages were left or put aside.
    """
    session = session_of(context)
    request = TransferRequest(
        verb="migrate",
        source=DelaysVersion.V1,
        target=DelaysVersion.V2,
        believe_headers=not distrust_headers,
        is_dry=dry_run,
    )
    _transfer(session, session.settings(), request, yes=yes)


@verbs.command()
@settings("delays")
def transfer(
    context: typer.Context,
    to_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The other broker; with a password: --to-url-file.",
            show_default=False,
        ),
    ] = None,
    to_url_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file that holds its URL.", show_default=False),
    ] = None,
    to_delays: Annotated[
        DelaysVersion, typer.Option(metavar="v1|v2", help="Generation on the other broker.")
    ] = DelaysVersion.V2,
    dry_run: DryRun = False,
    distrust_headers: Distrust = False,
    yes: Yes = False,
) -> None:
    """Move waiting messages from the delays of this broker into those of another.

    Works like `delays migrate`. Both brokers are reached with the certificates of broker.tls.

    Examples:
      migrator delays transfer --to-url amqp://migrator@rabbit-2/prod --dry-run
      migrator delays transfer --to-url-file /etc/migrator/target --yes
      migrator delays transfer --delays v1 --to-url-file /etc/migrator/target --yes

    Exit codes: 0 nothing is left; 3 delays are missing; 4 broker unreachable;
      5 done, but messages were left or put aside.
    """
    session = session_of(context)
    given = session.settings()
    request = TransferRequest(
        verb="transfer",
        source=given.broker.delays,
        target=to_delays,
        target_url=_target_url(to_url, to_url_file),
        believe_headers=not distrust_headers,
        is_dry=dry_run,
    )
    _transfer(session, given, request, yes=yes)


def _target_url(url: str | None, file: Path | None) -> str:
    if (url is None) == (file is None):
        raise ConfigError("where to? give --to-url or --to-url-file, and only one of them")
    if file is None:
        warn_of_password("--to-url", url or "")
        return url or ""
    try:
        return read_secret(file)
    except ValueError as exc:
        raise ConfigError(f"--to-url-file: {exc}") from exc


def _transfer(session: Session, settings: Settings, request: TransferRequest, *, yes: bool) -> None:
    from migrator.app.delays import open_delays
    from migrator.transfer.documents import moved_document

    if not request.is_dry:
        what = f"delays {request.verb} takes every message out of the delays {request.source}"
        confirmed(yes=yes, what=what)
    with progress("moving") as tell:

        def advance(outcome: Outcome) -> None:
            level = min(outcome.levels, default=0)
            tell(f"level {level:02d}, {counted(outcome.moved, 'message')} moved")

        with (
            open_delays(settings) as delays,
            delays.transfer(request, on_progress=advance) as moving,
        ):
            tell(f"{counted(moving.waiting(), 'message')} wait")
            if not moving.has_our_clock:
                say("the broker's clock and this machine's differ: the broker's times are not used")
            try:
                outcome = moving.run()
            except (MigratorError, KeyboardInterrupt):
                moved = counted(moving.outcome.moved, "message")
                say(f"{moved} moved, nothing is lost; run again to continue")
                raise
    if session.wants_json:
        write_document(moved_document(outcome, request))
    else:
        _show(outcome, request)
    is_whole = not (outcome.left or outcome.poison or outcome.unfinished)
    raise typer.Exit(ExitCode.DONE if is_whole else ExitCode.QUARANTINED)


# ── what is said ────────────────────────────────────────────────────────────────────────────────


def _collisions(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    return suffix_collisions(frozenset(outcome.destinations))


def _show(outcome: Outcome, request: TransferRequest) -> None:
    levels = [
        (f"{number:02d}", level.moved, level.left, level.poison)
        for number, level in outcome.levels.items()
        if level.found
    ]
    moved = "would move" if request.is_dry else "moved"
    if levels:
        write_table(("level", moved, "left", "poison"), levels)
    destinations = [
        (name, found.moved, found.left, found.detail)
        for name, found in sorted(outcome.destinations.items())
    ]
    if destinations:
        write_table(("destination", moved, "left", "why"), destinations)
    for line in _remarks(outcome, request):
        say(line)


def _remarks(outcome: Outcome, request: TransferRequest) -> Iterator[str]:
    would = " would be" if request.is_dry else ""
    yield f"{counted(outcome.moved, 'message')}{would} moved to the delays {request.target}"
    if outcome.left:
        yield (
            f"{counted(outcome.left, 'message')}{would} left in place; fix the cause shown above "
            "and run again"
        )
    if outcome.poison:
        yield f"{counted(outcome.poison, 'message')}{would} put into {request.poison_queue}"
    if outcome.uncertain:
        largest_s = outcome.largest_uncertainty.total_seconds()
        yield (
            f"{counted(outcome.uncertain, 'message')} with headers that are not reliable: late "
            f"rather than early, by {grouped(round(largest_s))} s at most"
        )
    for level in outcome.unfinished:
        yield (
            f"level {level:02d} was not read to its end: run again, or first fix why messages are "
            "left"
        )
    for catcher, caught in _collisions(outcome):
        yield f"messages for {caught} also reach {catcher}: its name is a suffix of theirs"
    if not request.is_dry:
        yield "run again to move what was published into higher levels meanwhile"
