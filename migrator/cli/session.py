"""One call of the program: its options, the settings they make, and what a verb works with.

Options that are settings are found by their name, whatever verb has them; a verb's body need not
pass them on. Libraries are imported by the first verb that needs them; ``--help`` does without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from migrator.cli.output import say, write_json, write_text
from migrator.errors import ConfigError

if TYPE_CHECKING:
    from migrator.app import App
    from migrator.config import Loaded
    from migrator.config.sources import Option

DEBUG: Final = 1
"""``-v``: debug lines."""
TRACEBACKS: Final = 2
"""``-vv``: tracebacks, too."""
_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "store_url": ("store.url", "--store-url"),
    "broker_url": ("broker.url", "--broker-url"),
    "management_url": ("broker.management_url", "--management-url"),
    "mode": ("handover.mode", "--mode"),
    "cutoff": ("handover.cutoff", "--cutoff"),
    "near_due": ("handover.near_due", "--near-due"),
    "horizon": ("handover.horizon", "--horizon"),
    "lanes": ("handover.lanes", "--lanes"),
    "delays": ("broker.delays", "--delays"),
    "rename": ("handover.destination_map", "--map"),
}
"""By the name of an option in Python: the setting, and the option as typed."""


@dataclass(slots=True)
class Session:
    """One call of the program."""

    file: Path | None = None
    given: dict[str, object] = field(default_factory=dict)
    """Options that are settings, by their name in Python."""
    wants_json: bool = False
    verbosity: int = 0

    def load(self) -> Loaded:
        """Return the settings in force, options included, and start logging as they say.

        Raises:
            ConfigError: Lists everything that is wrong.
        """
        from migrator import config
        from migrator.service import logs

        loaded = config.load(file=self.file, options=[*self.options()])
        log = loaded.settings.log
        level = "debug" if self.verbosity >= DEBUG else str(log.level)
        logs.configure(level=level, form=str(log.format))
        return loaded

    def options(self) -> Iterator[Option]:
        """Yield what was given to the verb, as one source of settings."""
        from migrator.config.sources import Option

        for name, value in self.given.items():
            key, option = _SETTINGS[name]
            yield Option(path=tuple(key.split(".")), value=value, name=option)

    @contextmanager
    def opened(self, *, with_ledger: bool = False) -> Iterator[App]:
        """Open the application; nothing connects before it is used, all is closed at the end.

        Raises:
            ConfigError: Settings are wrong.
            PreflightRefused: *with_ledger*, and there is none that can be used.
        """
        from migrator.app import App

        app = App(self.load().settings)
        try:
            if with_ledger:
                app.ledger_facts.verify()
            yield app
        finally:
            app.close()

    def tell(self, name: str, document: Mapping[str, object], *lines: str) -> None:
        """Write *document* to stdout where JSON is wanted, else tell a person *lines*."""
        if self.wants_json:
            write_json(name, document)
        else:
            say("\n".join(lines))

    def write(self, name: str, document: Mapping[str, object], text: str) -> None:
        """Write to stdout: *document* where JSON is wanted, else *text*."""
        if self.wants_json:
            write_json(name, document)
        else:
            write_text(text)


def session_of(context: typer.Context) -> Session:
    """Return the session of this call, with what was given to the verb.

    ``--json`` counts before the verb and after it.

    Raises:
        ConfigError: A ``--map`` is not of the form old=new.
    """
    session: Session = context.obj
    given: dict[str, Any] = context.params
    session.wants_json |= given.get("as_json", False)
    renamed = dict(map(_renamed, given.get("rename") or ())) or None
    for name, value in (given | {"rename": renamed}).items():
        if name in _SETTINGS and value is not None:
            session.given[name] = value
    return session


def _renamed(pair: str) -> tuple[str, str]:
    old, _, new = (part.strip() for part in pair.partition("="))
    if not old or not new:
        raise ConfigError(f"--map {pair!r} must be of the form old=new")
    return old, new


def endpoint_names(
    app: App, named: Sequence[str] | None, *, all_endpoints: bool, is_demanded: bool = False
) -> Sequence[str]:
    """Return the endpoints that are meant; empty: all the store has.

    Options win over the settings' ``[[endpoints]]``.

    Raises:
        ConfigError: Both kinds of options were given, or none, nor settings, and *is_demanded*.
    """
    if named and all_endpoints:
        raise ConfigError("--endpoint and --all-endpoints exclude each other")
    if named or all_endpoints:
        return tuple(named or ())
    if is_demanded and not app.settings.endpoints:
        raise ConfigError(
            "which endpoints? name them with --endpoint or in [[endpoints]], or use --all-endpoints"
        )
    return tuple(endpoint.name for endpoint in app.settings.endpoints)


def confirmed(*, yes: bool, what: str) -> None:
    """Go on only with ``--yes``.

    Raises:
        ConfigError: It was not given; says what would have happened.
    """
    if not yes:
        raise ConfigError(f"{what}; add --yes to do it. Nothing was changed")


def duration(option: str, text: str, *, is_some: bool = False) -> timedelta:
    """Return the duration that *text* names; *is_some*: longer than nothing.

    Raises:
        ConfigError: It is none; names the *option*.
    """
    from migrator.config.values import parse_duration

    try:
        span = parse_duration(text)
    except ValueError as exc:
        raise ConfigError(f"{option} {text!r} {exc}") from exc
    if is_some and not span:
        raise ConfigError(f"{option} {text!r} must be longer than nothing")
    return span


Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would happen; changes nothing.")
]
Run = Annotated[int | None, typer.Option("--run", metavar="ID", help="Only what this run claimed.")]
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
