"""HTTP round the routes: what is let in, how much of a body is read, what every answer carries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from migrator.errors import ErrorAnswer
from migrator.reports import fields_of, json_bytes
from migrator.web.auth import Listener, WrongTokens, refusal
from migrator.web.connections import Crowd

_log = logging.getLogger(__name__)

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""With every answer; a page may have a policy of its own."""
JSON: Final = "application/json"
LARGEST_BODY_BYTES: Final = 8 * 1024
HEALTH: Final = frozenset({"/live", "/ready"})
"""Answered however many connections there are."""
BODY_TIMEOUT_S: Final = 5.0
"""Within this the whole body of a request must be there."""


async def read_body(request: Request) -> bytes:
    """Return the body, of which no more is kept than may be.

    Raises:
        HTTPException: It is too large, too slow, or ends early; the connection is to be closed.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY_BYTES:
                    raise _closing(413, f"the body has more than {LARGEST_BODY_BYTES} bytes")
    except TimeoutError as exc:
        raise _closing(408, f"the body did not come within {BODY_TIMEOUT_S:g} s") from exc
    except ClientDisconnect as exc:
        raise _closing(400, "the body ended early") from exc
    return bytes(body)


def kind_of(request: Request) -> str:
    """Return the content type without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _closing(status: int, text: str) -> HTTPException:
    """Return an error after which the connection ends, because the rest of a body is not read."""
    return HTTPException(status, text, headers={"connection": "close"})


class Guard:
    """Answers what ``auth`` refuses, passes all else on, and puts its headers into every answer."""

    def __init__(self, app: ASGIApp, listener: Listener, wrong: WrongTokens, crowd: Crowd) -> None:
        self._app = app
        self._crowd = crowd
        self._listener = listener
        self._wrong = wrong

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have it answered."""
        if scope["type"] != "http":
            return
        asked = Request(scope, receive)
        refused = refusal(asked, self._listener)
        address = asked.client.host if asked.client and not self._listener.is_socket else None
        if scope["path"] not in HEALTH and self._crowd.is_over(address):
            refused = HTTPException(503, "too many connections")
        answer = self._app
        if refused is not None:
            # a connection closed before its body was read is reset, and the answer may be lost
            with suppress(HTTPException):
                await read_body(asked)
            is_wrong = refused.status_code == 401 and "authorization" in asked.headers
            if is_wrong and not await self._wrong.wait():
                refused = HTTPException(
                    429, "too many wrong tokens; the right one is always accepted"
                )
            headers = {"www-authenticate": "Bearer"} if refused.status_code == 401 else {}
            # what is left of a body must not be taken for the next request
            answer = _error(refused.status_code, refused.detail, {**headers, "connection": "close"})

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await answer(scope, receive, send_with_headers)


async def on_http_error(_request: Request, exc: Exception) -> Response:
    """Answer with what is wrong with a request."""
    if not isinstance(exc, HTTPException):  # pragma: no cover - it is registered for these only
        raise exc
    text = {
        404: "there is nothing at this path",
        405: "this path does not support that method",
    }.get(exc.status_code)
    return _error(exc.status_code, text or exc.detail, exc.headers)


async def on_bug(request: Request, exc: Exception) -> Response:
    """Answer and log an unhandled exception."""
    _log.error(
        "a request could not be answered",
        extra={"action": "web_failed", "path": request.scope["path"]},
        exc_info=exc,
    )
    # nothing else is between this and the connection
    return _error(500, "a bug; the log has details", {**SECURITY_HEADERS, "connection": "close"})


def _error(status: int, text: str, headers: Mapping[str, str] | None) -> Response:
    return json_response(
        "error", fields_of(ErrorAnswer(error=text)), status=status, headers=headers
    )


def json_response(
    name: str,
    document: Mapping[str, object],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return *document* as ``migrator/<name>/1``."""
    return Response(
        json_bytes(name, document),
        status_code=status,
        headers={"content-type": JSON, **(headers or {})},
    )
