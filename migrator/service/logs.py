"""Log lines: text on a terminal, JSON elsewhere, and never a password.

Every module logs with the standard library: a constant message and
``extra={"action": …, …}``. Actions are public, each has its line in docs/reference/log-actions.md,
out of ``dev/reference/words.py``; the other keys are facts. Nothing else in migrator configures
logging. Most verbs write no line, and then structlog is not imported: it is with the first line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TextIO

from migrator.config import mask
from migrator.text import visible

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

_NOISY: Final = {
    "alembic": logging.WARNING,
    "apscheduler": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "azure": logging.ERROR,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "pika": logging.CRITICAL,
    "urllib3": logging.CRITICAL,
    "uvicorn": logging.CRITICAL,
}
"""Libraries whose lines repeat what we log ourselves, from this level on they are shown."""


def configure(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all log lines to *stream*, in the wanted form; replaces what was configured before.

    Args:
        level: Name of the lowest level that is written: ``info`` …
        form: ``json``, ``text``, or ``auto``: text when *stream* is a terminal.
        stream: None: the process's stderr.
    """
    stream = sys.stderr if stream is None else stream
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_FirstLine(as_text=as_text, has_colours=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, lowest in _NOISY.items():
        logging.getLogger(name).setLevel(lowest)
    logging.captureWarnings(capture=True)


class _FirstLine(logging.Formatter):
    """Makes text, maybe with colours, or JSON, by what the first line has it import."""

    def __init__(self, *, as_text: bool, has_colours: bool) -> None:
        super().__init__()
        self._as_text = as_text
        self._has_colours = has_colours

    def format(self, record: logging.LogRecord) -> str:
        return self._formatter.format(record)

    @cached_property
    def _formatter(self) -> logging.Formatter:
        import structlog

        renderer: Processor = (
            structlog.dev.ConsoleRenderer(colors=self._has_colours)
            if self._as_text
            else structlog.processors.JSONRenderer(default=str)
        )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _redacted_event,
                *([_visible_event] if self._as_text else ()),
                renderer,
            ],
        )


def _redacted_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Return *event* with everything that looks like a password replaced, at any depth."""
    return {key: masked(value) for key, value in event.items()}


def _visible_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Return *event* with all escaped that a terminal may act on; tracebacks keep their lines."""
    return {
        key: masked(value, partial(visible, keep="\n\t" if key == "exception" else ""))
        for key, value in event.items()
    }


def masked(value: object, shown: Callable[[str], str] = mask) -> object:
    """Return *value* with every text in it as *shown*: what looks like a password is replaced."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {key: masked(inner, shown) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner, shown) for inner in value]
    return shown(str(value)) if isinstance(value, BaseException) else value
