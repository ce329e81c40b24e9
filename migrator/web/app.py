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

from migrator.reports.documents import fields_of
from migrator.web.auth import Listener, peer_of
from migrator.web.control import Command, CommandQueue, StatusService, UnansweredError, parse_order
from migrator.web.http import JSON, Guard, json_response, kind_of, on_bug, on_http_error, read_body
from migrator.web.metrics import CONTENT_TYPE, Instruments, scrape
from migrator.web.status import snapshot_document
from migrator.web.status_page import StatusPage


def new_app(
    status: StatusService, instruments: Instruments, commands: CommandQueue, listener: Listener
) -> Starlette:
    """Return the application that serves *status* at *listener*."""
    routes = _Routes(status, instruments, commands, listener)
    # whoever may open the socket has a command line; the page is for browsers
    page = [] if listener.is_socket else StatusPage(status, commands, listener).routes()
    app = Starlette(
        routes=[
            Route("/live", routes.live, methods=["GET"]),
            Route("/ready", routes.ready, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/status", routes.snapshot, methods=["GET"]),
            Route("/ledger", routes.ledger, methods=["GET"]),
            Route("/control", routes.control, methods=["POST"]),
            *page,
        ],
        middleware=[Middleware(Guard, listener=listener)],
        exception_handlers={HTTPException: on_http_error, Exception: on_bug},
    )
    app.router.redirect_slashes = False  # a path is right or it is not there
    return app


@dataclass(frozen=True, slots=True)
class _Routes:
    """What each path answers; the first line of each method is its line in the reference."""

    _status: StatusService
    _instruments: Instruments
    _commands: CommandQueue
    _listener: Listener

    async def live(self, _request: Request) -> Response:
        """`migrator/live/1`; 503 when a loop does not go on."""
        found = self._status.live()
        return json_response("live", fields_of(found), status=200 if found.is_alive else 503)

    async def ready(self, _request: Request) -> Response:
        """`migrator/ready/1`; 503 with the reasons."""
        found = self._status.ready()
        return json_response("ready", fields_of(found), status=200 if found.is_ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """The [metrics](metrics.md), as Prometheus' text."""
        text = scrape(self._status, self._instruments)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def snapshot(self, _request: Request) -> Response:
        """`migrator/daemon/1`: one look at everything."""
        return json_response("daemon", snapshot_document(self._status.snapshot()))

    async def ledger(self, request: Request) -> Response:
        """`migrator/status/1`: the ledger as of now; 404 when `place` is another one's."""
        place = request.query_params.get("place", self._status.ledger_place)
        if place != self._status.ledger_place:
            raise HTTPException(404, "this daemon works with another ledger")
        found = await self._commands.ledger()
        if found is None:
            raise HTTPException(503, "the ledger cannot be read now")
        return json_response("status", found)

    async def control(self, request: Request) -> Response:
        """`migrator/control/1`: what came of a command; 409 when it was refused."""
        command, name = await _order(request)
        try:
            answer = await self._commands.execute(command, who=self._who(name, request))
        except UnansweredError as exc:
            raise HTTPException(exc.status, str(exc)) from exc
        return json_response("control", fields_of(answer), status=200 if answer.is_done else 409)

    def _who(self, name: str | None, request: Request) -> str:
        """Return who commands: as they call themselves, and what is known of them."""
        peer = peer_of(request)
        way = (
            f"{peer or 'somebody'} by the control socket"
            if self._listener.is_socket
            else f"token from {peer}"
        )
        return f"{name} ({way})" if name else way


async def _order(request: Request) -> tuple[Command, str | None]:
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
