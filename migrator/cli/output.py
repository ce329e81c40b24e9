"""Writing results: as a table for people, as JSON for programs or as a page, and how far it is.

A file gets all of it or nothing, and is for nobody else to read: the text goes into a new file
beside the place, is forced to the disk, and takes the place; who reads meanwhile reads what was
there before, and so does everybody after a crash. A file of this user's keeps its mode; any other
one gets 0600. A link of another user's is not followed, on the way neither. What is no file, such
as ``/dev/stdout``, is written to, unless another user has put it there.
"""

from __future__ import annotations

import math
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO
from uuid import uuid4

from migrator import reports
from migrator.config.secrets import Step, UntrustedError, walk
from migrator.errors import ConfigError
from migrator.text import counted, grouped, visible

if TYPE_CHECKING:  # drawing is imported by those who draw: a verb that writes JSON does not
    from rich.console import Console, RenderableType
    from rich.table import Table

    from migrator.documents import Document


FORMS: Final = ("table", "html")
_MODE: Final = 0o600
_WIDTH_WITHOUT_TERMINAL: Final = 240
"""Characters; so that nothing is cut when a table goes into a file or a pipe."""
_LINES: Final = "\n\t"
"""Of what a terminal acts on, texts of several lines keep these."""
AMBER: Final = "yellow"
"""Of what a person should look at, on a terminal."""
RED: Final = "bold red"
"""Of what a person has to decide, or what was refused."""


class Marked(NamedTuple):
    """A value in a table that has a colour on a terminal."""

    value: object
    style: str


def write_json(name: str, data: Mapping[str, object]) -> None:
    """Write *data* to stdout as the document ``migrator/<name>/1``."""
    document = {"schema": f"migrator/{name}/1", **data}
    print(json_text(document))  # noqa: T201 - stdout is where data goes


def write_document(document: Document) -> None:
    """Write *document* to stdout."""
    print(json_text(document.values))  # noqa: T201 - stdout is where data goes


def json_text(document: Mapping[str, object]) -> str:
    """Return *document* as indented JSON."""
    return reports.json_text(document, indent=2)


def write_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    stream: TextIO | None = None,
    style: str = "",
) -> None:
    """Write a table to stdout; numbers stand on the right, *style* is that of all its rows."""
    write_drawn(drawn_table(columns, rows, style=style), stream=stream)


def drawn_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, style: str = ""
) -> Table:
    """Return a table; numbers stand on the right, *style* is that of all its rows."""
    from rich.table import Table
    from rich.text import Text

    def cell(value: object) -> str | Text:
        if isinstance(value, Marked):
            return Text(_cell(value.value), style=value.style)
        return _cell(value)

    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.show_header = any(columns)
    for index, column in enumerate(columns):
        is_number = bool(listed) and all(_is_number(row[index]) for row in listed)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in listed:
        table.add_row(*(cell(value) for value in row), style=style)
    return table


def write_drawn(
    table: RenderableType, *, stream: TextIO | None = None, width: int = _WIDTH_WITHOUT_TERMINAL
) -> None:
    """Write what is drawn already to stdout, without blanks at the ends of lines in a file."""
    from rich.segment import Segment, Segments

    target = console(stream, width=width)
    drawn = Segments(
        Segment(visible(each.text, keep=_LINES), each.style) for each in target.render(table)
    )
    if target.is_terminal:
        target.print(drawn, crop=False)
        return
    with target.capture() as captured:
        target.print(drawn, crop=False)
    for line in captured.get().splitlines():
        target.file.write(line.rstrip() + "\n")


def write_text(text: str, *, style: str = "") -> None:
    """Write lines of data to stdout, on a terminal in a *style*; what it may act on is escaped."""
    text = visible(text, keep=_LINES)
    if style and (target := console()).is_terminal:
        target.print(text, style=style, soft_wrap=True)
    else:
        print(text)  # noqa: T201 - stdout is where data goes


def say(text: str) -> None:
    """Tell a person something, on stderr; what a terminal may act on is escaped."""
    print(visible(text, keep=_LINES), file=sys.stderr)  # noqa: T201 - talk goes to stderr


def console(stream: TextIO | None = None, *, width: int = _WIDTH_WITHOUT_TERMINAL) -> Console:
    """Return a console that takes text as it is: queue names may hold brackets.

    *width* is that of lines where there is no terminal.
    """
    from rich.console import Console

    stream = sys.stdout if stream is None else stream
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else width,
    )


def _is_number(value: object) -> bool:
    value = value.value if isinstance(value, Marked) else value
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return grouped(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return visible(str(value))


@contextmanager
def progress(what: str, *, every_s: float = math.inf) -> Iterator[Callable[[str], None]]:
    """Show how far *what* is: one line that changes at a terminal, elsewhere a line now and then.

    Args:
        what: The line begins with it.
        every_s: Seconds between two lines where there is no terminal.
    """
    if sys.stderr.isatty():
        with console(sys.stderr).status(what) as line:
            yield lambda text: line.update(visible(f"{what}: {text}"))
        return
    told_s = time.monotonic()

    def tell(text: str) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= every_s:
            told_s = time.monotonic()
            say(f"{what}: {text}")

    yield tell


@contextmanager
def rows_read() -> Iterator[Callable[[str, int], None]]:
    """Show at a terminal how many rows of which endpoint were read; told as they are."""
    counts: Counter[str] = Counter()
    with progress("reading") as show:

        def advance(name: str, rows: int) -> None:
            counts[name] += rows
            show(f"{name}, {counted(counts[name], 'row')}")

        yield advance


# ── where it is written ──────────────────────────────────────────────────────────────────────────


def chosen_form(form: str, output: Path | None, *, wants_json: bool) -> str:
    """Return how the result is written; *output* has to be a place for it.

    Raises:
        ConfigError: There is no such form or no such place, or ``--json`` asks for another form.
    """
    if form not in FORMS:
        raise ConfigError(f"--format {form!r} must be table or html; --json writes JSON")
    if wants_json and form == "html":
        raise ConfigError("--json and --format html exclude each other")
    if output is not None:
        demand_place(output)
    return "json" if wants_json else form


def write_result(text: str, output: Path | None) -> None:
    """Write *text* to *output*, or to stdout.

    Raises:
        ConfigError: It cannot be written there.
    """
    if output is None:
        write_text(text)
        return
    write_file(output, text)
    say(f"written to {output}")


def demand_place(path: Path) -> None:
    """Demand, before long work, that *path* can be written.

    Raises:
        ConfigError: Its folder is missing or must not be written, or it is a folder itself, or
            another user has a link or a pipe there.
    """
    if path.is_dir():
        raise ConfigError(f"--output {path} is a folder; name a file in it")
    with _explained(path):
        if _is_special(path):
            return
        try:
            folder, _ = walk(path, _demand_own_link)
        except FileNotFoundError:
            folder = None
        if folder is not None:
            try:
                if os.access(f"/proc/self/fd/{folder}", os.W_OK | os.X_OK):
                    return
            finally:
                os.close(folder)
    raise ConfigError(
        f"--output {path} cannot be written: there is no folder {path.resolve().parent} that this "
        "user may write to"
    )


def write_file(path: Path, text: str) -> None:
    """Write *text* and a line's end to *path*; what was there is replaced when all is written.

    Raises:
        ConfigError: It cannot be written. What was there before is there still.
    """
    with replacing(path) as stream:
        stream.write(text + "\n")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Give a stream for what is to be in *path*; it is there when the block has ended well.

    Raises:
        ConfigError: It cannot be written. What was there before is there still, as after any
            other error within the block.
    """
    with _explained(path), _opened(path) as stream:
        yield stream


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except UntrustedError as exc:
        raise ConfigError(f"--output {path} cannot be written: {exc}") from exc
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigError(f"--output {path} cannot be written: {reason}") from exc


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Give a stream for *path*; all is done in the folder that the way was walked to."""
    if _is_special(path):
        with os.fdopen(_opened_special(path), "w", encoding="utf-8") as stream:
            yield stream
        return
    folder, name = walk(path, _demand_own_link)
    try:
        beside = f".migrator-{uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(beside, flags, _MODE, dir_fd=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                yield stream
                stream.flush()
                os.fchmod(stream.fileno(), _mode(name, folder))
                os.fsync(stream.fileno())
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def _demand_own_link(step: Step) -> None:
    if step.is_link and not step.is_ours:
        raise UntrustedError(
            f"the link {step.path} belongs to another user; name the file that is meant"
        )


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _opened_special(path: Path) -> int:
    """Return a handle of what is no file; what the shell has opened may be another user's.

    Raises:
        UntrustedError: Another user has put it there, or a file in its place.
    """
    handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    found = os.fstat(handle)
    is_ours = found.st_uid in (0, os.geteuid()) or _is_of_kernel(path)
    if stat.S_ISREG(found.st_mode) or not is_ours:
        os.close(handle)
        raise UntrustedError("it belongs to another user")
    return handle


def _is_of_kernel(path: Path) -> bool:
    """Whether *path* is below /dev or /proc, where no other user can put anything."""
    if not (path.is_relative_to("/dev") or path.is_relative_to("/proc")):
        return False
    folder = path.parent.stat()  # of /dev/shm everybody may
    is_writable = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder.st_uid in (0, os.geteuid()) and not is_writable


def _mode(name: str, folder: int) -> int:
    """Return the mode of this user's file there, or else that of a new one."""
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return _MODE
    return stat.S_IMODE(found.st_mode) & 0o777 if found.st_uid == os.geteuid() else _MODE
