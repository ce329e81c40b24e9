"""Every option that more than one verb has, declared once: its name, type, help and variable.

Those of ``SHARED`` are given to the session as they are read and never to a verb's function: the
global ones, which stand anywhere on the line, and those that are settings, which a verb takes with
``settings``. The others are types for the parameters of a verb's function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer

from migrator.config.sources import variable
from migrator.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])


class Shared(NamedTuple):
    """An option that goes to the session."""

    metavar: str
    help: str
    key: str = ""
    """Of the setting that it is."""
    kind: Any = str
    decls: tuple[str, ...] = ()
    """How it is typed, if it is not its name."""


GLOBAL: Final[Mapping[str, Shared]] = {
    "config": Shared("FILE", "Settings file.  [env: MIGRATOR_CONFIG; else migrator.toml]"),
    "store_url": Shared("URL", "Legacy database; with a password: --store-url-file.", "store.url"),
    "store_url_file": Shared("FILE", "File with that address.", "store.url_file"),
    "broker_url": Shared("URL", "RabbitMQ; with a password: --broker-url-file.", "broker.url"),
    "broker_url_file": Shared("FILE", "File with that address.", "broker.url_file"),
    "management_url": Shared(
        "URL",
        "RabbitMQ's management API; with a password: --management-url-file.",
        "broker.management_url",
    ),
    "management_url_file": Shared("FILE", "File with that address.", "broker.management_url_file"),
    "json": Shared("", "Write JSON to stdout, and an error as JSON to stderr.", kind=bool),
    "verbose": Shared(
        "", "Print more; twice: tracebacks as well.", kind=int, decls=("--verbose", "-v")
    ),
}
"""Those of every verb."""
SHARED: Final[Mapping[str, Shared]] = {
    **GLOBAL,
    "mode": Shared("staged|direct", "How to hand over.", "handover.mode"),
    "cutoff": Shared(
        "DURATION",
        "Leave rows due sooner than this; 0s: no timeout manager runs any more.",
        "handover.cutoff",
    ),
    "near_due": Shared(
        "leave|dispatch",
        "Rows due sooner than the cutoff: leave them to the timeout manager, or send them when"
        " due.",
        "handover.near_due",
    ),
    "horizon": Shared(
        "DURATION", "Leave rows due later than this in the store.", "handover.horizon"
    ),
    "map": Shared(
        "OLD=NEW",
        "Send to another queue; may be repeated.",
        "handover.destination_map",
        kind=list[str],
    ),
    "delays": Shared("v1|v2", "Generation of native delays.", "broker.delays"),
    "lanes": Shared("N", "Batches handed over in parallel.", "handover.lanes"),
}
HAND_OVER: Final = ("mode", "cutoff", "near_due", "horizon", "map", "delays")
"""What says which rows go, and how."""


def settings(*names: str) -> Callable[[Function], Function]:
    """Let a verb's function have the options *names* of ``SHARED``; the session gets them."""

    def mark(function: Function) -> Function:
        vars(function)["takes"] = names
        return function

    return mark


def typed(name: str) -> str:
    """Return how a person types the option *name*."""
    return f"--{name.replace('_', '-')}"


@cache
def shared_parameters() -> Mapping[str, Any]:
    """Return the options of ``SHARED`` as the command line's library has them, by name."""
    declared = {}
    for name, each in SHARED.items():
        twin = f"  [env: {variable(tuple(each.key.split('.')))}]" if each.key else ""
        option = typer.Option(
            *(each.decls or (typed(name),)),
            metavar=each.metavar or None,
            help=each.help + twin,
            expose_value=False,
            show_default=False,
            count=each.kind is int,
        )
        default = {bool: False, int: 0}.get(each.kind)
        declared[name] = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[each.kind | None if default is None else each.kind, option],
        )

    def holder() -> None:
        """Have all of them."""

    vars(holder)["__signature__"] = inspect.Signature([*declared.values()])
    holder.__annotations__ = {name: each.annotation for name, each in declared.items()}
    program = typer.Typer(add_completion=False)
    program.command()(holder)
    command: Any = typer.main.get_command(program)
    params = {param.name: param for param in command.params if param.name in SHARED}
    for name, param in params.items():
        # the library would import its own for values that the settings look at anyway
        param.process_value = partial(_keep, name)
    return params


def _keep(name: str, context: Any, value: object) -> None:
    """Give the session what was given, at whatever place on the line."""
    if isinstance(value, str | list | tuple | int) and not context.resilient_parsing:
        context.obj.keep(name, value)


def renamed(pairs: Sequence[str]) -> dict[str, str]:
    """Return what ``--map`` says: the new name of a destination, by its old one.

    Raises:
        ConfigError: A pair is not of the form old=new.
    """
    found = {}
    for pair in pairs:
        old, _, new = (part.strip() for part in pair.partition("="))
        if not old or not new:
            raise ConfigError(f"--map {pair!r} must be of the form old=new")
        found[old] = new
    return found


# ── of a verb's function ─────────────────────────────────────────────────────────────────────────

Endpoints = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="NAME", help="Only this endpoint; may be repeated."),
]
AllEndpoints = Annotated[
    bool, typer.Option("--all-endpoints", help="Every endpoint the store has.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would happen; change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Confirm that you want this done.")]
Run = Annotated[int | None, typer.Option("--run", metavar="ID", help="Only what this run claimed.")]
Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket", metavar="FILE", help="The daemon's control socket.  [env: MIGRATOR_WEB__SOCKET]"
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="table|html", help="A table, or a page to mail."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write there instead of stdout; a new file is readable for its owner only.",
        show_default=False,
    ),
]
Evidence = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", show_default=False, help="Write one line per timeout, for an auditor."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.1, help="Messages per second to assume for the estimate."),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Convert every row. By default a SQL database counts them, and only odd rows and a "
        "sample of up to 1 000 others are converted.",
    ),
]

# ── of whatever walks over the delay levels ──────────────────────────────────────────────────────

Margin = Annotated[
    str, typer.Option(metavar="DURATION", help="Leave messages due within this time to the broker.")
]
MaxHold = Annotated[
    str,
    typer.Option(
        "--max-hold", metavar="DURATION", help="Hold other senders' messages no longer than this."
    ),
]
MaxDepth = Annotated[
    int,
    typer.Option(
        "--max-depth", metavar="N", min=0, help="Do not read levels with more messages than this."
    ),
]
MARGIN: Final = "1m"
"""As ``recall.rules.MARGIN``, which takes longer to import."""
MAX_HOLD: Final = "20s"
MAX_DEPTH: Final = 200_000
MOMENTS: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z"]
DueFrom = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME", formats=MOMENTS, help="Only handed-over rows due at this time or later."
    ),
]
DueUntil = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME", formats=MOMENTS, help="Only handed-over rows due before this time."
    ),
]
