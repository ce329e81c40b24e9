"""The program: global options, the verbs, and the exit code of every ending."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import migrator
from migrator.cli import (
    batch,
    broker,
    check,
    control,
    db,
    decommission,
    delays,
    endpoints,
    ledger,
    preview,
    quarantine,
    recall,
    rollback,
    run,
    seed,
    settings,
    status,
    verify,
)
from migrator.cli.output import say, write_text
from migrator.cli.session import TRACEBACKS, Session, given, session_of
from migrator.config import mask
from migrator.errors import ExitCode, MigratorError

program = typer.Typer(
    name="migrator",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  migrator check --all-endpoints
  migrator preview --endpoint Sales
  migrator run --endpoint Sales
  migrator status --watch

\b
Exit codes:
  0 done   1 bug   2 usage or settings   3 a check refused   4 store or broker unreachable
  5 done, but rows are in quarantine   6 the outcome of a batch is doubtful""",
)
program.command(epilog=run.EPILOG)(run.run)
program.command(epilog=preview.EPILOG)(preview.preview)
program.command(epilog=check.EPILOG)(check.check)
program.command(epilog=endpoints.EPILOG)(endpoints.endpoints)
program.command(epilog=status.EPILOG)(status.status)
program.command(epilog=control.PAUSE_EPILOG)(control.pause)
program.command(epilog=control.RESUME_EPILOG)(control.resume)
program.command("set", epilog=control.SET_EPILOG)(control.adjust)
program.command(epilog=control.DRAIN_EPILOG)(control.drain)
program.command(epilog=control.STOP_EPILOG)(control.stop)
program.command(epilog=verify.EPILOG)(verify.verify)
program.add_typer(quarantine.verbs, name="quarantine")
program.command(epilog=rollback.EPILOG)(rollback.rollback)
program.command(epilog=recall.EPILOG)(recall.recall)
program.command(epilog=decommission.EPILOG)(decommission.decommission)
program.add_typer(batch.verbs, name="batch")
program.add_typer(delays.verbs, name="delays")
program.add_typer(db.verbs, name="db")
program.add_typer(broker.verbs, name="broker")
program.add_typer(ledger.verbs, name="ledger")
program.add_typer(settings.verbs, name="config")
program.command(epilog=seed.EPILOG)(seed.seed)


def _print_version(value: bool) -> None:
    if value:
        write_text(f"migrator {migrator.__version__}")
        raise typer.Exit


@program.callback()
def _global_options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings file.  [env: MIGRATOR_CONFIG; else migrator.toml]"
        ),
    ] = None,
    store_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Legacy database.  [env: MIGRATOR_STORE__URL]"),
    ] = None,
    broker_url: Annotated[
        str | None, typer.Option(metavar="URL", help="RabbitMQ.  [env: MIGRATOR_BROKER__URL]")
    ] = None,
    management_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="RabbitMQ's management API.  [env: MIGRATOR_BROKER__MANAGEMENT_URL]",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON to stdout; also after the verb.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Say more; twice: tracebacks, too.",
        ),
    ] = 0,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Move NServiceBus delayed messages from a legacy database into RabbitMQ's native delays.

    Settings come from defaults, migrator.toml, MIGRATOR_* variables and options; each wins over
    those before it.
    """
    session = session_of(context)
    session.file = config
    session.wants_json = as_json
    session.verbosity = verbose
    urls = (
        given("store.url", store_url, "--store-url"),
        given("broker.url", broker_url, "--broker-url"),
        given("broker.management_url", management_url, "--management-url"),
    )
    session.options = [option for option in urls if option is not None]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program on *arguments* (None: the process's own) and end the process."""
    session = Session()
    try:
        program(args=arguments, prog_name="migrator", obj=session)
    except MigratorError as exc:
        _end(str(exc), exc.exit_code, session)
    except Exception as exc:
        hint = "" if session.verbosity >= TRACEBACKS else "; -vv shows where"
        _end(f"bug: {type(exc).__name__}: {exc}{hint}", ExitCode.BUG, session)


def _end(text: str, code: ExitCode, session: Session) -> None:
    if session.verbosity >= TRACEBACKS:
        say(mask(traceback.format_exc()))
    say(f"migrator: {mask(text)}")
    sys.exit(code)
