"""The pages of what a daemon answers: its metrics, and its paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from dev.reference import words
from dev.reference.markdown import first_line, page, table
from migrator.web.auth import Listener, is_page, refusal
from migrator.web.connections import Crowd
from migrator.web.control import COMMANDS, Command, CommandQueue
from migrator.web.metrics import GROUPS, Instruments, Measure
from migrator.web.server import new_app

_TOKEN: Final = "any"  # noqa: S105 - a listener wants one, and this one is opened to nobody
_HERE: Final = "127.0.0.1"
_ELSEWHERE: Final = "192.0.2.1"
_WAYS: Final = (
    ("control socket", Listener(is_socket=True), _HERE),
    (
        "this machine, no token set or `web.open_to_local`",
        Listener(is_socket=False, token=_TOKEN, open_to_local=True),
        _HERE,
    ),
    ("this machine", Listener(is_socket=False, token=_TOKEN), _HERE),
    ("other machines", Listener(is_socket=False, token=_TOKEN, is_loopback=False), _ELSEWHERE),
)
"""How a daemon may be asked, and from where."""
_PAGE: Final = (
    "`GET /`, `/page/…`",
    "the [status page](../status-page.md)",
    "not there",
    "open to look, a login to act",
    "login",
    "login",
)


# ── paths ───────────────────────────────────────────────────────────────────────────────────────


def http() -> str:
    """Return every path, who may ask it, and what may come back."""
    commands = [
        (f"`{verb}`", ", ".join(f"`{key}`" for key in keys_of(kind)), first_line(kind))
        for verb, kind in COMMANDS.items()
    ]
    codes = [(str(code), why) for code, why in words.HTTP_CODES.items()]
    return page(
        "HTTP",
        "What a daemon answers at its control socket and at `web.listen`; how to switch it on and "
        "what protects it is on the [page about control](../control.md).",
        "## Paths\n\n" + table(("path", "answer", *(name for name, _, _ in _WAYS)), _paths()),
        "*open* needs nothing, *token* wants `Authorization: Bearer` with the one of `web.token`; "
        "where none is set, the answer is 403. *This machine* is who connects from it, also a "
        "proxy there.",
        "## Commands\n\n`POST /control` takes one JSON object: `command`, what may be given with "
        "it, and `who`, the name for the audit trail.\n"
        "Other keys are refused, so that a mistyped `endpoint` does not pause everything.\n"
        "Only `set` needs what it may be given; `reason` of `retry` and `discard` is a "
        "[code](quarantine-reasons.md).",
        table(("command", "with", "what it does"), commands),
        "## Errors\n\nEvery other answer is `migrator/error/1` with one line in `error`.",
        table(("code", "why"), codes),
    )


def keys_of(kind: type[Command]) -> Sequence[str]:
    """Return what may be given with a command."""
    return sorted(each.name for each in fields(kind))


def paths() -> Iterator[tuple[str, Route]]:
    """Yield method and route of all that is served over TCP."""
    panel: Any = None  # nobody asks it
    app = new_app(panel, Instruments(), CommandQueue(panel), Listener(is_socket=False), Crowd())
    for route in app.routes:
        if isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield method, route


def _paths() -> Iterator[tuple[str, ...]]:
    for method, route in paths():
        if not is_page(route.path):
            may = (_may(method, route.path, listener, peer) for _, listener, peer in _WAYS)
            yield f"`{method} {route.path}`", first_line(route.endpoint), *may
    yield _PAGE


def _may(method: str, path: str, listener: Listener, peer: str) -> str:
    """Return what the guard wants."""
    asked = Request(
        {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(b"host", b"localhost")],
            "client": (peer, 1),
        }
    )
    return "open" if refusal(asked, listener) is None else "token"


# ── metrics ─────────────────────────────────────────────────────────────────────────────────────


def metrics() -> str:
    """Return every metric by what it is about."""
    return page(
        "Metrics",
        "What `GET /metrics` answers; how to scrape and how to read them is on a "
        "[page of its own](../metrics.md).",
        *_groups(),
        "`process_resident_memory_bytes`, `process_cpu_seconds_total`, `process_open_fds` and the "
        "other `process_` metrics of Prometheus' own library are there as well.\n"
        "A histogram shows `_bucket`, `_count` and `_sum`; a `_created` beside a counter or a "
        "histogram is when it began.",
    )


def _groups() -> Iterator[str]:
    for title, measures in GROUPS.items():
        yield f"## {title}"
        yield table(("metric", "kind", "labels", "what it tells"), map(_row, measures))


def _row(measure: Measure) -> tuple[str, str, str, str]:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"`{measure.name}`", measure.kind, labels, measure.what
