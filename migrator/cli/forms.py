"""How a result is written: as a table, as JSON or as a page, to stdout or into a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from migrator import __version__
from migrator.app import App
from migrator.cli.files import demand_place, write_file
from migrator.cli.output import say, write_text
from migrator.errors import ConfigError, MigratorError
from migrator.reports.pages import About

FORMS: Final = ("table", "json", "html")
_REPEATED: Final = ("mode", "cutoff", "near_due", "horizon", "delays")

Format = Annotated[
    str, typer.Option("--format", metavar="table|json|html", help="How to write the result.")
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


def chosen_form(form: str, output: Path | None, *, wants_json: bool) -> str:
    """Return how the result is written; *output* has to be a place for it.

    Raises:
        ConfigError: There is no such form or no such place, or ``--json`` asks for another form.
    """
    if form not in FORMS:
        raise ConfigError(f"--format {form!r} must be table, json or html")
    if wants_json and form == "html":
        raise ConfigError("--json and --format html exclude each other")
    if output is not None:
        demand_place("--output", output)
    return "json" if wants_json else form


def write_result(text: str, output: Path | None) -> None:
    """Write *text* to *output*, or to stdout.

    Raises:
        ConfigError: It cannot be written there.
    """
    if output is None:
        write_text(text)
        return
    write_file("--output", output, text)
    say(f"written to {output}")


def about_of(app: App, options: Mapping[str, Any]) -> About:
    """Return what a page says about itself; a ledger is not needed.

    Args:
        app: Whose ledger.
        options: Of the verb that was called, by their names in Python.
    """
    ledger, not_checked = None, []
    try:
        ledger = app.ledger_id
    except MigratorError as exc:  # a preview may be the very first thing an operator does
        not_checked = [f"The ledger: {exc}"]
    return About(
        version=__version__,
        ledger=ledger,
        options=shlex.join(_again(app, options)),
        not_checked=not_checked,
    )


def _again(app: App, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words that mean the same rows when they follow another verb."""
    for name in options["endpoint"] or ():
        yield from ("--endpoint", name)
    is_all = not options["endpoint"] and not app.settings.endpoints
    if options.get("all_endpoints", False) or (is_all and "all_endpoints" in options):
        yield "--all-endpoints"
    for name in _REPEATED:
        if options.get(name) is not None:
            yield from (f"--{name.replace('_', '-')}", options[name])
    for pair in options.get("rename") or ():
        yield from ("--map", pair)
