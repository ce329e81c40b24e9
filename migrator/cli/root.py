"""The program: global options, the verbs, and the exit code of every ending."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, NoReturn, cast

import typer

import migrator
from migrator.cli.lazy import COMPLETING, LazyGroup, new_group
from migrator.cli.options import typed
from migrator.cli.output import say, write_document, write_table, write_text
from migrator.cli.session import TRACEBACKS, Session, session_of
from migrator.errors import ErrorLine, ExitCode, Failure, MigratorError
from migrator.reports import fields_of, json_text
from migrator.text import visible

_NEW_OBJECTS: Final = 50_000
"""So many more than are gone make Python look for garbage; it has 700 otherwise."""
_WrongUsage: Any = typer.BadParameter.__bases__[0]
"""What the library raises for every error in usage."""


class Verbs(LazyGroup):
    """What ``migrator --help`` lists, in its order."""

    lines: ClassVar = {
        "preview": "Show what a migration would do, and what would go wrong. Changes nothing.",
        "run": "Move stored timeouts into the native delays, or be the timeout manager.",
        "status": "Show progress, quarantine, doubtful batches and lanes.",
        "pause": "Claim nothing more, until resumed; what is claimed is finished.",
        "resume": "Lift a pause; without --endpoint every pause.",
        "stop": "Have the daemon finish what is claimed, then end; --now: after the current step.",
        "set": "Change a setting of [handover] until the daemon is started again.",
        "config": "Show the settings in force.",
        "verify": "Compare store, ledger and broker: is every timeout accounted for?",
        "rollback": "Undo a migration, or a part of it: put rows back, byte for byte.",
        "decommission": "Remove the queues of an endpoint's timeout manager, and ours.",
        "quarantine": "Rows kept aside with a reason: list, show, retry, export, discard.",
        "delays": "The native delay levels: create, show, probe, move or delete them.",
        "db": "The ledger's tables and rights, and decisions that need a person.",
        "completion": "Print the script that lets bash, zsh or fish complete verbs and options.",
        "seed": "Write invented timeouts into the store, for rehearsals.",
    }
    unlisted: ClassVar = frozenset({"completion", "seed"})
    modules: ClassVar = {
        **dict.fromkeys(("pause", "resume", "set", "stop"), "control"),
        "config": "root:config_verbs",
    }


program = new_group(
    cls=Verbs,
    name="migrator",
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
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Move NServiceBus delayed messages from a legacy database into RabbitMQ's native delays.

    Settings come from defaults, migrator.toml, MIGRATOR_* variables and options; each overrides
    those before it. The options below may be given before or after the verb.
    """


config_verbs = new_group()


@config_verbs.command("config")
def show_config(context: typer.Context) -> None:
    """Show every setting with its value, where it came from and what it means.

    Secrets are masked. Connects nowhere.

    Examples:
      migrator config
      migrator config --config /etc/migrator/migrator.toml --json
      MIGRATOR_HANDOVER__CUTOFF=0s migrator config
    """
    from migrator import config

    session = session_of(context)
    loaded = session.load()
    rows = config.describe(loaded)
    if session.wants_json:
        file = None if loaded.file is None else str(loaded.file)
        write_document(config.ConfigDocument(file=file, settings=rows))
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
    if COMPLETING in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # re-exported

        completion_init()
    words = sys.argv[1:] if arguments is None else [*arguments]
    session = Session(wants_json=typed("json") in words)  # an error may come before it is parsed
    try:
        sys.exit(program(args=words, prog_name="migrator", obj=session, standalone_mode=False))
    except _WrongUsage as exc:
        if not session.wants_json:
            exc.message = visible(exc.message)
            exc.show()
            sys.exit(exc.exit_code)
        path = exc.ctx.command_path if exc.ctx else "migrator"
        _end(exc.format_message(), ExitCode.USAGE, session, remedy=f"see `{path} --help`")
    except typer.Abort:
        _end("not confirmed; nothing was changed", ExitCode.USAGE, session)
    except MigratorError as exc:
        _end(str(exc), exc.exit_code, session, remedy=exc.remedy)
    except Exception as exc:
        hint = "" if session.verbosity >= TRACEBACKS else "; -vv shows where"
        _end(f"bug: {type(exc).__name__}: {exc}{hint}", ExitCode.BUG, session)


def _end(text: str, code: ExitCode, session: Session, *, remedy: str | None = None) -> NoReturn:
    from migrator.config import mask  # not before it is needed: the settings' library is slow

    if session.verbosity >= TRACEBACKS:
        say(mask(traceback.format_exc()))
    if session.wants_json:
        found = ErrorLine(
            error=mask(text),
            remedy=remedy,
            exit_code=code,
            outcome=cast("Failure", code.name.lower()),
        )
        say(json_text({"schema": "migrator/error/1", **fields_of(found)}))
    else:
        say(f"migrator: {mask(text)}")
    sys.exit(code)
