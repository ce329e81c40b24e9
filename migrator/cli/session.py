"""One call of the program: its options, the settings they make, and what a verb works with.

Libraries are imported by the first verb that needs them; ``--help`` does without.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from migrator import __version__
from migrator.cli.options import SHARED, renamed, typed
from migrator.cli.output import say, write_document, write_text
from migrator.config.secrets import mask_address
from migrator.config.sources import Option
from migrator.errors import ConfigError, MigratorError
from migrator.text import parse_duration

if TYPE_CHECKING:
    from migrator.config import Loaded, Settings
    from migrator.documents import Document
    from migrator.reports.pages import About

DEBUG: Final = 1
"""``-v``: debug lines."""
_REPEATED: Final = ("mode", "cutoff", "near_due", "horizon", "delays", "map")
TRACEBACKS: Final = 2
"""``-vv``: tracebacks, too."""


@dataclass(slots=True)
class Session:
    """One call of the program."""

    file: Path | None = None
    given: dict[str, object] = field(default_factory=dict)
    """Options that are settings, by their name in ``SHARED``."""
    wants_json: bool = False
    verbosity: int = 0

    def keep(self, name: str, value: Any) -> None:
        """Keep the value of the option *name* of ``SHARED``.

        Raises:
            ConfigError: A ``--map`` is not of the form old=new.
        """
        if name == "config":
            self.file = Path(value)
        elif name == "json":
            self.wants_json |= value
        elif name == "verbose":
            self.verbosity += value
        elif name != "map":
            self.given[name] = value
            if name.endswith("_url"):
                warn_of_password(typed(name), str(value))
        elif value:
            self.given[name] = renamed(value)

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

    def settings(self) -> Settings:
        """Return the settings in force; raises what ``load`` does."""
        return self.load().settings

    def options(self) -> Iterator[Option]:
        """Yield what was given to the verb, as one source of settings."""
        for name, value in self.given.items():
            path = tuple(SHARED[name].key.split("."))
            yield Option(path=path, value=value, name=typed(name))

    def tell(self, document: Document, *lines: str) -> None:
        """Write *document* to stdout where JSON is wanted, else tell a person *lines*."""
        if self.wants_json:
            write_document(document)
        else:
            say("\n".join(lines))

    def write(self, document: Document, text: str) -> None:
        """Write to stdout: *document* where JSON is wanted, else *text*."""
        if self.wants_json:
            write_document(document)
        else:
            write_text(text)


def warn_of_password(option: str, address: str) -> None:
    """Warn of a password that *option* was given with, and name the one that takes a file."""
    if mask_address(address) != address:
        say(
            f"warning: every user of this machine can see the password in {option} while the "
            f"command runs; put the address into a file and use {option}-file"
        )


def session_of(context: typer.Context) -> Session:
    """Return the session of this call, with what was given."""
    session: Session = context.obj
    return session


def endpoint_names(
    settings: Settings,
    named: Sequence[str] | None,
    *,
    all_endpoints: bool,
    is_demanded: bool = False,
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
    if is_demanded and not settings.endpoints:
        raise ConfigError(
            "which endpoints? name them with --endpoint or in [[endpoints]], or use --all-endpoints"
        )
    return tuple(endpoint.name for endpoint in settings.endpoints)


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
    try:
        span = parse_duration(text)
    except ValueError as exc:
        raise ConfigError(f"{option} {text!r} {exc}") from exc
    if is_some and not span:
        raise ConfigError(f"{option} {text!r} must be longer than 0s")
    return span


def about_of(
    session: Session,
    settings: Settings,
    ledger: str | MigratorError,
    named: Sequence[str] | None,
    *,
    is_all: bool | None = None,
) -> About:
    """Return what a page says about itself.

    Args:
        session: Has the options that are settings.
        settings: In force.
        ledger: Its id, or why it has none: a preview may be the first thing an operator does.
        named: The endpoints that were named.
        is_all: Whether all were asked for; None: the verb has no such option.
    """
    from migrator.reports.pages import About

    words = [word for name in named or () for word in ("--endpoint", name)]
    if is_all or (is_all is False and not named and not settings.endpoints):
        words.append("--all-endpoints")
    words += _again(session.given)
    return About(
        version=__version__,
        ledger=ledger if isinstance(ledger, str) else None,
        options=shlex.join(words),
        not_checked=() if isinstance(ledger, str) else [f"The ledger: {ledger}"],
    )


def _again(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words that mean the same rows when they follow another verb."""
    for name in _REPEATED:
        if isinstance(found := given.get(name), dict):
            yield from (w for old, new in found.items() for w in (typed(name), f"{old}={new}"))
        elif found is not None:
            yield from (typed(name), found)
