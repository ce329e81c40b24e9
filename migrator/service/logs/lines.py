"""One log line: text or JSON, and never a password."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from migrator.config.secrets import mask


def new_formatter(*, as_text: bool, has_colours: bool) -> logging.Formatter:
    """Return what makes lines of records, as text, maybe with colours, or as JSON."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ending: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        redacted,
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=has_colours)
        if as_text
        else structlog.processors.JSONRenderer(default=str)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[*ending, renderer]
    )


def redacted(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Return *event* with everything that looks like a password replaced, at any depth."""
    return {key: _redacted(value) for key, value in event.items()}


def _redacted(value: object) -> object:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {key: _redacted(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(inner) for inner in value]
    return mask(str(value)) if isinstance(value, BaseException) else value
