"""The HTTP server of a running daemon: one thread for each socket.

The main thread owns signals and logging. A failure here ends no other thread, and all threads end
with the context. Paths, codes and documents are public: docs/control.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server

from migrator.config.settings import is_loopback
from migrator.errors import ConfigError, MigratorError
from migrator.reports import fields_of
from migrator.status.document import daemon_document
from migrator.web.auth import Listener, WrongTokens, peer_of
from migrator.web.connections import IDLE_S, Connection, Crowd
from migrator.web.control import Command, CommandQueue, StatusService, UnansweredError, parse_order
from migrator.web.http import JSON, Guard, json_response, kind_of, on_bug, on_http_error, read_body
from migrator.web.listener import tcp_socket, unix_socket
from migrator.web.metrics import CONTENT_TYPE, Instruments, scrape
from migrator.web.status_page import StatusPage

_log = logging.getLogger(__name__)

_GRACE_S: Final = 3
"""At the end, requests that are being answered have so long."""
_START_S: Final = 10.0
_DATE_S: Final = 1.0
"""The header ``Date`` counts whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPlan:
    """Where to listen, and the token."""

    socket: Path | None = None
    """File of the control socket; None: there is none."""
    needs_socket: bool = True
    """False: the socket is not configured, so the daemon works without it."""
    listen: tuple[str, int] | None = None
    """Address and port; port 0: any that is free; None: no TCP."""
    token: str | None = field(default=None, repr=False)
    """None: over TCP a client can only read, and only from this machine."""
    open_to_local: bool = False
    """Clients on this machine may read without the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where it really listens."""

    socket: Path | None
    address: tuple[str, int] | None


@contextmanager
def serve(status: StatusService, plan: WebPlan, instruments: Instruments) -> Iterator[Served]:
    """Serve *status* as *plan* says for as long as the context lasts.

    Call it from the main thread, before anything is claimed: it raises before it yields or never.

    Raises:
        ConfigError: A socket cannot be had: it is taken, or cannot be made. Nothing is served.
    """
    with ExitStack() as ends:
        listeners: list[tuple[Listener, socket.socket]] = []
        address = None
        file = None
        if (found := _socket(plan, ends)) is not None:
            listeners.append((Listener(is_socket=True), found))
            file = plan.socket
        if plan.listen is not None:
            bound = ends.enter_context(tcp_socket(*plan.listen))
            host, port = bound.getsockname()[:2]
            address = (str(host), int(port))
            listener = Listener(
                is_socket=False,
                token=plan.token,
                is_loopback=is_loopback(address[0]),
                open_to_local=plan.open_to_local,
            )
            listeners.append((listener, bound))
        if listeners:
            commands = CommandQueue(status)  # one for all listeners
            for listener, bound in listeners:
                crowd = Crowd()
                app = new_app(status, instruments, commands, listener, crowd)
                ends.enter_context(_running(_Server(_config(app, crowd)), bound))
            _log.info(
                "listening for status and control",
                extra={
                    "action": "web_listening",
                    "socket": str(file or ""),
                    "address": "" if address is None else f"{address[0]} port {address[1]}",
                },
            )
        yield Served(socket=file, address=address)


def _socket(plan: WebPlan, ends: ExitStack) -> socket.socket | None:
    """Return the control socket; None: there is none, or it is not needed and cannot be had."""
    if plan.socket is None:
        return None
    try:
        return ends.enter_context(unix_socket(plan.socket))
    except ConfigError as exc:
        if plan.needs_socket:
            raise
        _log.warning(
            "the default control socket cannot be used; the work continues without one",
            extra={"action": "web_socket_missing", "error": str(exc)},
        )
        return None


class _Server(Server):
    """Ticks once a second, not ten times, to cost less at rest."""

    async def main_loop(self) -> None:
        """Wait for the end; the header ``Date`` is renewed meanwhile."""
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _DATE_S)

    def end(self) -> None:
        """End it; for other threads."""
        self.should_exit = True
        if self.started:
            with suppress(RuntimeError):  # it ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)


@contextmanager
def _running(server: _Server, bound: socket.socket) -> Iterator[None]:
    """Run *server* in a thread of its own; what is being answered at the end has a few seconds."""
    thread = threading.Thread(target=_run, args=(server, bound), name="web", daemon=True)
    thread.start()
    try:
        deadline_s = time.monotonic() + _START_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.005)
        if not server.started:
            raise MigratorError("the web server did not start; the log says why")
        yield
    finally:
        server.end()
        thread.join(2 * _GRACE_S)


def _run(server: Server, bound: socket.socket) -> None:
    try:
        asyncio.run(server.serve(sockets=[bound]))
    except BaseException:
        # status and control are missing from now on; the work itself goes on
        _log.critical("a bug ended the web server", extra={"action": "web_crashed"}, exc_info=True)


def _config(app: Starlette, crowd: Crowd) -> Config:
    return Config(
        app,
        interface="asgi3",
        http=partial(Connection, crowd),  # type: ignore[arg-type]  # called as the class is
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # who asks is who connects, whatever a header says
        server_header=False,
        workers=1,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )


# ── what each path answers ────────────────────────────────────────────────────────────────────────


def new_app(
    status: StatusService,
    instruments: Instruments,
    commands: CommandQueue,
    listener: Listener,
    crowd: Crowd,
) -> Starlette:
    """Return the application that serves *status* at *listener*, to the connections of *crowd*."""
    routes, wrong = _Routes(status, instruments, commands, listener), WrongTokens()
    # a user who can open the socket has a command line; the page is for browsers
    page = [] if listener.is_socket else StatusPage(status, commands, listener, wrong).routes()
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
        middleware=[Middleware(Guard, listener=listener, wrong=wrong, crowd=crowd)],
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
        return json_response("daemon", daemon_document(self._status.snapshot()))

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
            f"{peer or 'an unknown user'} over the control socket"
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
        text = "the body is not JSON" if isinstance(exc, json.JSONDecodeError) else str(exc)
        raise HTTPException(400, text) from exc
