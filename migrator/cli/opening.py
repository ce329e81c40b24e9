"""Opens the application for a verb, and says which endpoints are meant."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from migrator.app import App
from migrator.cli.output import console
from migrator.config import Loaded
from migrator.errors import ConfigError
from migrator.ledger.work import StoreEndpoint
from migrator.stores.endpoints import EndpointPreview


@contextmanager
def opened(loaded: Loaded) -> Iterator[App]:
    """Open the application; nothing connects before it is used, all is closed at the end."""
    app = App(loaded.settings)
    try:
        yield app
    finally:
        app.close()


def endpoint_names(app: App, named: Sequence[str] | None, *, all_endpoints: bool) -> Sequence[str]:
    """Return the endpoints that are meant; empty: all the store has.

    Options win over the settings' ``[[endpoints]]``.

    Raises:
        ConfigError: Both kinds of options were given.
    """
    if named and all_endpoints:
        raise ConfigError("--endpoint and --all-endpoints exclude each other")
    if named or all_endpoints:
        return tuple(named or ())
    return tuple(endpoint.name for endpoint in app.settings.endpoints)


def named_endpoints(app: App, named: Sequence[str] | None, *, all_endpoints: bool) -> Sequence[str]:
    """Return the endpoints that are meant, for verbs that change something.

    Raises:
        ConfigError: Nobody said which.
    """
    names = endpoint_names(app, named, all_endpoints=all_endpoints)
    if not names and not all_endpoints:
        raise ConfigError(
            "which endpoints? name them with --endpoint or in [[endpoints]], or use --all-endpoints"
        )
    return names


def surveyed(
    app: App, endpoints: Sequence[StoreEndpoint], *, max_rows: int | None = None
) -> Sequence[EndpointPreview]:
    """Return what would become of the rows of *endpoints*, with progress on a terminal."""
    from migrator.app.preflight import count_rows  # most verbs count nothing

    with progress_bar() as advance:
        return count_rows(app, endpoints, progress=advance, max_rows=max_rows)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int], None]]:
    """Show on a terminal how many rows of which endpoint were read; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _name, _rows: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("reading {task.description}"), MofNCompleteColumn())
    with Progress(*columns, BarColumn(), console=console(sys.stderr), transient=True) as bar:
        tasks = {}

        def advance(name: str, rows: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=None)
            bar.advance(tasks[name], rows)

        yield advance
