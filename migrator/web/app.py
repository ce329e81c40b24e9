"""The HTTP side of one daemon: health, metrics, status and control.

Every answer is made of what the panel knows, every wish is filed there. Paths, codes and documents
are public: docs/control.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from migrator.web.bodies import kind_of, read_body
from migrator.web.commands import Order, parse_order
from migrator.web.documents import (
    answer_document,
    json_bytes,
    live_document,
    ready_document,
    snapshot_document,
)
from migrator.web.guard import Asked, Door, Refusal, is_open, refusal
from migrator.web.metrics import CONTENT_TYPE, Instruments, scrape
from migrator.web.orders import NoAnswerError, NotBegunError, Orders
from migrator.web.page import StatusPage
from migrator.web.panel import Panel
from migrator.web.tries import Tries

_log = logging.getLogger(__name__)

WRONG_TOKENS: Final = 30
WRONG_SPAN_S: Final = 30.0
"""An address that gave so many wrong tokens within that time is not listened to for a while."""
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""With every answer; a page may have a policy of its own."""
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What all doors of one daemon have in common."""

    panel: Panel
    instruments: Instruments
    orders: Orders


def new_app(desk: Desk, door: Door) -> Starlette:
    """Return the application that serves *desk* at *door*."""
    routes = _Routes(desk, door)
    # whoever may open the socket has a command line; the page is for browsers
    page = [] if door.is_socket else StatusPage(desk.panel, desk.orders, door).routes()
    app = Starlette(
        routes=[
            Route("/live", routes.live, methods=["GET"]),
            Route("/ready", routes.ready, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/status", routes.status, methods=["GET"]),
            Route("/control", routes.control, methods=["POST"]),
            *page,
        ],
        middleware=[Middleware(_Headers), Middleware(_Guard, door=door)],
        exception_handlers={HTTPException: _on_http_error, Exception: _on_bug},
    )
    app.router.redirect_slashes = False  # a path is right or it is not there
    return app


class _Routes:
    """What each path answers; the first line of each method is its line in the reference."""

    def __init__(self, desk: Desk, door: Door) -> None:
        self._desk = desk
        self._door = door

    async def live(self, _request: Request) -> Response:
        """`migrator/live/1`; 503 when a loop does not go on."""
        found = self._desk.panel.live()
        return _json("live", live_document(found), status=200 if found.is_alive else 503)

    async def ready(self, _request: Request) -> Response:
        """`migrator/ready/1`; 503 with the reasons."""
        found = self._desk.panel.ready()
        return _json("ready", ready_document(found), status=200 if found.is_ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """The [metrics](metrics.md), as Prometheus' text."""
        text = scrape(self._desk.panel, self._desk.instruments)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def status(self, _request: Request) -> Response:
        """`migrator/daemon/1`: one look at everything."""
        return _json("daemon", snapshot_document(self._desk.panel.snapshot()))

    async def control(self, request: Request) -> Response:
        """`migrator/control/1`: what came of a command; 409 when it was refused."""
        order = await _order(request)
        who = _who(order, request, self._door)
        try:
            answer = await self._desk.orders.execute(order.command, who=who)
        except NotBegunError as exc:
            raise HTTPException(
                503, "another command is still under way; nothing was done, try again"
            ) from exc
        except NoAnswerError as exc:
            raise HTTPException(
                504, "the daemon did not answer in time and may still do it; look at /status"
            ) from exc
        return _json("control", answer_document(answer), status=200 if answer.is_done else 409)


async def _order(request: Request) -> Order:
    if kind_of(request) != _JSON:
        raise HTTPException(415, f"the body must be {_JSON}")
    body = await read_body(request)
    try:
        return parse_order(json.loads(body))
    except RecursionError as exc:
        raise HTTPException(400, "the body is nested too deeply") from exc
    except ValueError as exc:
        text = "the body is no JSON" if isinstance(exc, json.JSONDecodeError) else str(exc)
        raise HTTPException(400, text) from exc


def _who(order: Order, request: Request, door: Door) -> str:
    """Return who gave *order*: as they call themselves, and what is known of them."""
    peer = request.client.host if request.client else ""
    way = f"{peer or 'somebody'} by the control socket" if door.is_socket else f"token from {peer}"
    return f"{order.who} ({way})" if order.who else way


class _Guard:
    """Lets nothing in that the door does not let in."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door
        self._tries = Tries(most=WRONG_TOKENS, span_s=WRONG_SPAN_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        asked = Asked(
            method=request.method,
            path=request.url.path,
            headers=request.headers,
            peer=request.client.host if request.client else "",
        )
        refused = self._refusal(asked)
        if refused is None:
            await self._app(scope, receive, send)
            return
        headers = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
        # a body that is not read must not be taken for the next request
        answer = _error(refused.status, refused.text, {**headers, "connection": "close"})
        await answer(scope, receive, send)

    def _refusal(self, asked: Asked) -> Refusal | None:
        if is_open(asked, self._door):
            return refusal(asked, self._door)  # a token is not looked at, so none is guessed
        has_token = "authorization" in asked.headers and not self._door.is_socket
        if has_token and self._tries.wait_s(asked.peer) > 0:
            return Refusal(429, "too many wrong tokens from your address; try again later")
        refused = refusal(asked, self._door)
        if has_token and refused is not None and refused.status == 401:
            self._tries.note_wrong(asked.peer)
        return refused


class _Headers:
    """Puts the headers that every answer has into it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in _RAW_HEADERS if pair[0] not in given),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


_RAW_HEADERS: Final = [
    (name.encode("latin-1"), value.encode("latin-1")) for name, value in SECURITY_HEADERS.items()
]


async def _on_http_error(_request: Request, exc: Exception) -> Response:
    if not isinstance(exc, HTTPException):  # pragma: no cover - it is registered for these only
        raise exc
    text = {404: "there is nothing at this path", 405: "not by this method"}.get(exc.status_code)
    return _error(exc.status_code, text or exc.detail, exc.headers)


async def _on_bug(request: Request, exc: Exception) -> Response:
    _log.error(
        "a request could not be answered",
        extra={"action": "web_failed", "path": request.url.path},
        exc_info=exc,
    )
    return _error(500, "a bug; the log has more", {"connection": "close"})


def _error(status: int, text: str, headers: Mapping[str, str] | None) -> Response:
    return _json("error", {"error": text}, status=status, headers=headers)


def _json(
    name: str,
    document: Mapping[str, object],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return Response(
        json_bytes(name, document),
        status_code=status,
        headers={"content-type": _JSON, **(headers or {})},
    )
