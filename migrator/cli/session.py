"""What a verb gets from the options before it: settings, and who reads the result.

The settings' library is imported by the first verb that loads them; ``--help`` does without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from migrator.errors import ConfigError

if TYPE_CHECKING:
    from migrator.config import Loaded
    from migrator.config.load import Option

DEBUG: Final = 1
"""``-v``: debug lines."""
TRACEBACKS: Final = 2
"""``-vv``: tracebacks, too."""


@dataclass(slots=True)
class Session:
    """One call of the program."""

    file: Path | None = None
    options: list[Option] = field(default_factory=list)
    wants_json: bool = False
    verbosity: int = 0

    def load(self, *more: Option | None) -> Loaded:
        """Return the settings in force, options included, and start logging as they say.

        Raises:
            ConfigError: Lists everything that is wrong.
        """
        from migrator import config
        from migrator.service import logs

        given = [option for option in more if option is not None]
        loaded = config.load(file=self.file, options=[*self.options, *given])
        log = loaded.settings.log
        level = "debug" if self.verbosity >= DEBUG else str(log.level)
        logs.configure(level=level, form=str(log.format))
        return loaded


def session_of(context: typer.Context, *, as_json: bool = False) -> Session:
    """Return the session of this call; ``--json`` counts before the verb and after it."""
    session = context.obj
    if not isinstance(session, Session):
        raise TypeError("verbs are called through migrator.cli.main")
    session.wants_json = session.wants_json or as_json
    return session


def given(key: str, value: object, name: str) -> Option | None:
    """Return *value* as an option for the setting *key*, or None when it was not given."""
    if value is None:
        return None
    from migrator.config.load import Option

    return Option(path=tuple(key.split(".")), value=value, name=name)


def renamed(pairs: Sequence[str] | None) -> Option | None:
    """Return ``--map old=new`` options as the setting they are.

    Raises:
        ConfigError: One is not of that form.
    """
    names: dict[str, object] = {}
    for pair in pairs or ():
        old, separator, new = pair.partition("=")
        if not separator or not old.strip() or not new.strip():
            raise ConfigError(f"--map {pair!r} must be of the form old=new")
        names[old.strip()] = new.strip()
    return given("handover.destination_map", names, "--map") if names else None


def selection_options(
    *,
    mode: str | None,
    cutoff: str | None,
    near_due: str | None,
    horizon: str | None,
    delays: str | None,
    rename: Sequence[str] | None,
) -> list[Option | None]:
    """Return what `run`, `preview` and `check` all take: which rows, how, and where to.

    Raises:
        ConfigError: A ``--map`` is not of the form old=new.
    """
    return [
        given("handover.mode", mode, "--mode"),
        given("handover.cutoff", cutoff, "--cutoff"),
        given("handover.near_due", near_due, "--near-due"),
        given("handover.horizon", horizon, "--horizon"),
        given("broker.delays", delays, "--delays"),
        renamed(rename),
    ]


def confirmed(*, yes: bool, what: str) -> None:
    """Go on only with ``--yes``.

    Raises:
        ConfigError: It was not given; says what would have happened.
    """
    if not yes:
        raise ConfigError(f"{what}; add --yes to do it. Nothing was changed")


def duration(option: str, text: str) -> timedelta:
    """Return the duration that *text* names.

    Raises:
        ConfigError: It is none; names the *option*.
    """
    from migrator.config.values import parse_duration

    try:
        return parse_duration(text)
    except ValueError as exc:
        raise ConfigError(f"{option} {text!r} {exc}") from exc


def some_time(option: str, text: str) -> timedelta:
    """Return the duration that *text* names.

    Raises:
        ConfigError: It is none, or none at all; names the *option*.
    """
    span = duration(option, text)
    if span <= timedelta(0):
        raise ConfigError(f"{option} {text!r} must be longer than nothing")
    return span


Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Yes = Annotated[bool, typer.Option("--yes", help="Really do it.")]
Endpoints = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="NAME", help="Only this endpoint; may be repeated."),
]
AllEndpoints = Annotated[
    bool, typer.Option("--all-endpoints", help="Every endpoint the store has.")
]
Mode = Annotated[
    str | None,
    typer.Option(metavar="staged|direct", help="How to hand over.  [env: MIGRATOR_HANDOVER__MODE]"),
]
Cutoff = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Leave rows due sooner than this; 0s: no timeout manager runs any more."
        "  [env: MIGRATOR_HANDOVER__CUTOFF]",
    ),
]
NearDue = Annotated[
    str | None,
    typer.Option(
        metavar="leave|dispatch",
        help="Rows due sooner than the cutoff: leave them to the timeout manager, or send them"
        " when due.  [env: MIGRATOR_HANDOVER__NEAR_DUE]",
    ),
]
Horizon = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Leave rows due later than this in the store.  [env: MIGRATOR_HANDOVER__HORIZON]",
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="Send to another queue; may be repeated.  [env: MIGRATOR_HANDOVER__DESTINATION_MAP]",
    ),
]
Delays = Annotated[
    str | None,
    typer.Option(
        "--delays",
        metavar="v1|v2",
        help="Generation of native delays.  [env: MIGRATOR_BROKER__DELAYS]",
    ),
]
