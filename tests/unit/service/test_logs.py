"""Tests of ``migrator.service.logs``."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from migrator.service import logs


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Put the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = handlers, level


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def logged(stream: io.StringIO) -> list[dict[str, object]]:
    """Return the lines written to *stream* as JSON."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_are_json_when_stderr_is_no_terminal() -> None:
    """Message, level, logger, time and the extra fields; configured again, once each."""
    stream = io.StringIO()
    for _ in range(2):
        logs.configure(level="info", form="auto", stream=stream)
    logging.getLogger("migrator.x").info("handed over", extra={"action": "a", "batch": 3})
    (line,) = logged(stream)
    assert line.pop("timestamp")
    said = {"event": "handed over", "level": "info", "logger": "migrator.x"}
    assert line == {**said, "action": "a", "batch": 3}


@pytest.mark.parametrize(("form", "stream"), [("auto", Terminal()), ("text", io.StringIO())])
def test_lines_are_text_for_people(form: str, stream: io.StringIO) -> None:
    """On a terminal, or when they ask for it."""
    logs.configure(level="info", form=form, stream=stream)
    logging.getLogger("migrator.x").info("handed over", extra={"batch": 3})
    assert "handed over" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_lower_levels_are_left_out() -> None:
    """Also those of libraries that repeat what we log."""
    stream = io.StringIO()
    logs.configure(level="warning", form="json", stream=stream)
    logging.getLogger("migrator.x").info("no")
    logging.getLogger("pika.connection").error("no")
    logging.getLogger("migrator.x").warning("yes")
    assert [line["event"] for line in logged(stream)] == ["yes"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_passwords_never_get_out(form: str) -> None:
    """Not from messages, arguments, fields at any depth, exceptions or tracebacks."""
    stream = io.StringIO()
    logs.configure(level="debug", form=form, stream=stream)
    url = "amqp://guest:swordfish@host/"
    try:
        int(url)
    except ValueError as exc:
        logging.getLogger("migrator.x").exception(
            "failed at %s", url, extra={"url": url, "deep": {"a": [url, (url,)]}, "error": exc}
        )
    assert "swordfish" not in stream.getvalue()
    assert "guest:***@host" in stream.getvalue()
