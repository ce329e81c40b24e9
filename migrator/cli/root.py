"""The program: global options, the verbs, and the exit code of every ending."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import typer

import migrator
from migrator.cli.lazy import LazyGroup, new_group
from migrator.cli.output import say, write_json, write_table, write_text
from migrator.cli.session import TRACEBACKS, Json, Session, session_of
from migrator.errors import ExitCode, MigratorError

_NEW_OBJECTS: Final = 50_000
"""So many more than are gone make Python look for garbage; it has 700 otherwise."""


class Verbs(LazyGroup):
    """What ``migrator --help`` lists, in its order."""

    lines: ClassVar = {
        "preview": "Say what a migration would do, and what would go wrong. Changes nothing.",
        "run": "Move stored timeouts into the native delays, or be the timeout manager.",
        "status": "Show progress, quarantine, doubtful batches and lanes.",
        "pause": "Claim nothing more, until resumed; what is claimed is finished.",
        "resume": "Lift a pause; without --endpoint every pause.",
        "stop": "Have the daemon finish what is claimed, then end; --now: between two steps.",
        "set": "Change a setting of [handover] until the daemon is started again.",
        "config": "Show the settings in force.",
        "verify": "Compare store, ledger and broker: is every timeout accounted for?",
        "rollback": "Undo a migration, or a part of it: put rows back, byte for byte.",
        "decommission": "Remove the queues of an endpoint's timeout manager, and ours.",
        "quarantine": "Rows kept aside with a reason: list, show, retry, export, discard.",
        "delays": "The native delay levels: make, show, try, move or delete them.",
        "db": "The ledger's tables, rights, and what a person has to decide.",
        "seed": "Write invented timeouts into the store, for rehearsals.",
    }
    unlisted: ClassVar = frozenset({"seed"})
    modules: ClassVar = {
        **dict.fromkeys(("pause", "resume", "set", "stop"), "control"),
        "config": "root:config_verbs",
    }


program = typer.Typer(
    name="migrator",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  migrator preview --all-endpoints
  migrator run --endpoint Sales
  migrator status --watch

\b
Exit codes:
  0 done   1 bug   2 usage or settings   3 a check refused   4 store or broker unreachable
  5 done, but rows are in quarantine   6 the outcome of a batch is doubtful""",
)


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
    session.verbosity = verbose


config_verbs = new_group()


@config_verbs.command("config")
def show_config(context: typer.Context, as_json: Json = False) -> None:
    """Show every setting with its value, where it came from and what it means.

    Secrets are masked. Nothing is connected to.

    Examples:
      migrator config
      migrator --config /etc/migrator/migrator.toml config --json
      MIGRATOR_HANDOVER__CUTOFF=0s migrator config
    """
    from migrator import config

    session = session_of(context)
    loaded = session.load()
    rows = config.describe(loaded)
    if session.wants_json:
        settings = [asdict(row) for row in rows]
        write_json("config", {"file": loaded.file and str(loaded.file), "settings": settings})
        return
    say(f"settings file: {loaded.file or 'none'}")
    write_table(
        ("setting", "value", "origin", "meaning"),
        ((r.key, config.show_text(r.value), r.origin, r.meaning) for r in rows),
    )


def every_verb() -> Any:
    """Return the program's command with all its verbs imported, for whoever goes through them."""
    whole: Any = typer.main.get_command(program)
    whole.load_all()
    return whole


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program on *arguments* (None: the process's own) and end the process."""
    # what is imported stays: to look for garbage in it 180 times takes a tenth of a short verb
    gc.set_threshold(_NEW_OBJECTS)
    session = Session()
    try:
        program(args=arguments, prog_name="migrator", obj=session)
    except MigratorError as exc:
        _end(str(exc), exc.exit_code, session)
    except Exception as exc:
        hint = "" if session.verbosity >= TRACEBACKS else "; -vv shows where"
        _end(f"bug: {type(exc).__name__}: {exc}{hint}", ExitCode.BUG, session)


def _end(text: str, code: ExitCode, session: Session) -> None:
    from migrator.config import mask  # not before it is needed: the settings' library is slow

    if session.verbosity >= TRACEBACKS:
        say(mask(traceback.format_exc()))
    say(f"migrator: {mask(text)}")
    sys.exit(code)
