"""The HTTP side of one daemon: health, metrics, status and control.

Every answer is made of what the status service knows, every command goes to it. Paths, codes and
documents are public: docs/control.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from migrator.web.auth import Listener
from migrator.web.control import (
    CommandQueue,
    NoAnswerError,
    NotBegunError,
    Order,
    StatusService,
    answer_document,
    parse_order,
)
from migrator.web.http import (
    JSON,
    Guard,
    SecurityHeaders,
    json_response,
    kind_of,
    on_bug,
    on_http_error,
    read_body,
)
from migrator.web.metrics import CONTENT_TYPE, Instruments, scrape
from migrator.web.page import StatusPage
from migrator.web.status import live_document, ready_document, snapshot_document


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """What all listeners of one daemon have in common."""

    status: StatusService
    instruments: Instruments
    commands: CommandQueue


def new_app(state: AppState, listener: Listener) -> Starlette:
    """Return the application that serves *state* at *listener*."""
    routes = _Routes(state, listener)
    # whoever may open the socket has a command line; the page is for browsers
    page = [] if listener.is_socket else StatusPage(state.status, state.commands, listener).routes()
    app = Starlette(
        routes=[
            Route("/live", routes.live, methods=["GET"]),
            Route("/ready", routes.ready, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/status", routes.status, methods=["GET"]),
            Route("/control", routes.control, methods=["POST"]),
            *page,
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(Guard, listener=listener)],
        exception_handlers={HTTPException: on_http_error, Exception: on_bug},
    )
    app.router.redirect_slashes = False  # a path is right or it is not there
    return app


class _Routes:
    """What each path answers; the first line of each method is its line in the reference."""

    def __init__(self, state: AppState, listener: Listener) -> None:
        self._state = state
        self._listener = listener

    async def live(self, _request: Request) -> Response:
        """`migrator/live/1`; 503 when a loop does not go on."""
        found = self._state.status.live()
        return json_response("live", live_document(found), status=200 if found.is_alive else 503)

    async def ready(self, _request: Request) -> Response:
        """`migrator/ready/1`; 503 with the reasons."""
        found = self._state.status.ready()
        return json_response("ready", ready_document(found), status=200 if found.is_ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """The [metrics](metrics.md), as Prometheus' text."""
        text = scrape(self._state.status, self._state.instruments)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def status(self, _request: Request) -> Response:
        """`migrator/daemon/1`: one look at everything."""
        return json_response("daemon", snapshot_document(self._state.status.snapshot()))

    async def control(self, request: Request) -> Response:
        """`migrator/control/1`: what came of a command; 409 when it was refused."""
        order = await _order(request)
        who = _who(order, request, self._listener)
        try:
            answer = await self._state.commands.execute(order.command, who=who)
        except NotBegunError as exc:
            raise HTTPException(
                503, "another command is still under way; nothing was done, try again"
            ) from exc
        except NoAnswerError as exc:
            raise HTTPException(
                504, "the daemon did not answer in time and may still do it; look at /status"
            ) from exc
        return json_response(
            "control", answer_document(answer), status=200 if answer.is_done else 409
        )


async def _order(request: Request) -> Order:
    if kind_of(request) != JSON:
        raise HTTPException(415, f"the body must be {JSON}")
    body = await read_body(request)
    try:
        return parse_order(json.loads(body))
    except RecursionError as exc:
        raise HTTPException(400, "the body is nested too deeply") from exc
    except ValueError as exc:
        text = "the body is no JSON" if isinstance(exc, json.JSONDecodeError) else str(exc)
        raise HTTPException(400, text) from exc


def _who(order: Order, request: Request, listener: Listener) -> str:
    """Return who gave *order*: as they call themselves, and what is known of them."""
    peer = request.client.host if request.client else ""
    way = (
        f"{peer or 'somebody'} by the control socket"
        if listener.is_socket
        else f"token from {peer}"
    )
    return f"{order.who} ({way})" if order.who else way
