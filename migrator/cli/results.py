"""How a result is written: as a table, as JSON or as a page, to stdout or into a file.

A file gets all of it or nothing, and is for nobody else to read: the text goes into a new file
beside the place, is forced to the disk, and takes the place; who reads meanwhile reads what was
there before, and so does everybody after a crash. A file that is there keeps its mode; a new one
gets 0600. What is no file, such as ``/dev/stdout``, is written to.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from migrator import __version__
from migrator.app import App
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


_MODE: Final = 0o600


def demand_place(option: str, path: Path) -> None:
    """Demand, before long work, that *path* can be written.

    Raises:
        ConfigError: Its folder is missing or must not be written, or it is a folder itself.
    """
    target = path.resolve()
    if target.is_dir():
        raise ConfigError(f"{option} {path} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        return
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {path} cannot be written: no folder {target.parent} that we may write to"
        )


def write_file(option: str, path: Path, text: str) -> None:
    """Write *text* and a line's end to *path*; what was there is replaced when all is written.

    Raises:
        ConfigError: It cannot be written. What was there before is there still.
    """
    try:
        _write(path.resolve(), (text + "\n").encode())
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigError(f"{option} {path} cannot be written: {reason}") from exc


def _write(target: Path, content: bytes) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    beside = target.with_name(f".migrator-{uuid4().hex}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), _mode(target))
            os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _mode(target: Path) -> int:
    try:
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    except FileNotFoundError:
        return _MODE
