"""The web side on a real server, socket file and TCP port; the daemon only remembers."""

from __future__ import annotations

import getpass
import json
import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from migrator.errors import MigratorError
from migrator.nservicebus.timeouts import EndpointName
from migrator.web import auth, connections, http
from migrator.web.control import Liveness, Pause, Readiness
from migrator.web.metrics import Instruments
from migrator.web.server import Served, WebPlan, serve
from tests.support.documents import HOOKS
from tests.support.fuzzing import EXAMPLES, damaged, fuzz
from tests.support.panel import MemoryPanel

TOKEN = "correct horse battery"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True, slots=True)
class Site:
    """A served panel, and two ways to it."""

    panel: MemoryPanel
    instruments: Instruments
    served: Served
    by_socket: httpx.Client
    by_http: httpx.Client

    @property
    def address(self) -> tuple[str, int]:
        """Where TCP is listened on."""
        assert self.served.address is not None
        return self.served.address


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="web-") as folder:
        yield Path(folder) / "control.sock"


@pytest.fixture(scope="module")
def shared_site() -> Iterator[Site]:
    """A panel served on both ways, with a token."""
    panel, instruments = MemoryPanel(), Instruments()
    with tempfile.TemporaryDirectory(prefix="web-") as folder:
        path = Path(folder) / "control.sock"
        plan = WebPlan(socket=path, listen=("127.0.0.1", 0), token=TOKEN)
        with serve(panel, plan, instruments) as served:
            assert served.address is not None
            base = "http://{}:{}".format(*served.address)
            by_http = httpx.Client(base_url=base, trust_env=False, timeout=30, event_hooks=HOOKS)
            with client(path) as by_socket, by_http:
                yield Site(panel, instruments, served, by_socket, by_http)


@pytest.fixture
def site(shared_site: Site) -> Site:
    """The same, with a panel that was told nothing yet."""
    shared_site.panel.__init__()  # type: ignore[misc]  # all of it begins anew
    return shared_site


def client(path: Path) -> httpx.Client:
    """Return whoever asks by the socket."""
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path), verify=False),
        base_url="http://daemon",
        timeout=30,
        event_hooks=HOOKS,
    )


def error(answer: httpx.Response, status: int) -> str:
    """Return the text of an error; it must have this status and the documented form."""
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    assert document.pop("schema") == "migrator/error/1"
    return str(document["error"])


def raw(address: tuple[str, int], request: bytes, *, seconds: float = 30) -> bytes:
    """Return everything that is answered to *request* until the server hangs up."""
    with closing(socket.create_connection(address, timeout=seconds)) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    return answer


# ── what is answered, and what is not ───────────────────────────────────────────────────────


def test_a_command_by_the_socket_needs_no_token(site: Site) -> None:
    """It is noted with who gave it: as they call themselves, and as the kernel knows them."""
    order = {"command": "pause", "endpoint": "Sales", "reason": "index rebuild", "who": "alice"}
    found = site.by_socket.post("/control", json=order)
    assert (found.status_code, found.json()) == (
        200,
        {"schema": "migrator/control/1", "is_done": True, "text": "paused Sales: index rebuild"},
    )
    ((command, who),) = site.panel.told
    assert command == Pause(endpoint=EndpointName("Sales"), reason="index rebuild")
    assert who == f"alice ({getpass.getuser()}, uid {os.getuid()} over the control socket)"
    refused = site.by_socket.post(
        "/control", json={"command": "set", "setting": "batch_size", "value": "many"}
    )
    assert (refused.status_code, refused.json()["is_done"]) == (409, False)


def test_a_command_over_http_needs_the_token(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is noted as coming from there; the right one is taken however many wrong ones wait."""
    order = {"command": "drain"}
    assert "Bearer" in error(site.by_http.post("/control", json=order), 401)
    wrong = {"authorization": f"Bearer {TOKEN}!"}
    refused = site.by_http.post("/control", json=order, headers=wrong)
    error(refused, 401)
    assert refused.headers["www-authenticate"] == "Bearer"
    monkeypatch.setattr(auth, "MOST_WRONG", 0)
    assert "too many" in error(site.by_http.post("/control", json=order, headers=wrong), 429)
    assert not site.panel.told
    assert site.by_http.post("/control", json=order, headers=BEARER).json()["is_done"]
    assert [who for _, who in site.panel.told] == ["token from 127.0.0.1"]


def test_health_is_told_by_status_and_reason(site: Site) -> None:
    """Without a token; 503 when it is not well."""
    assert site.by_http.get("/live").json()["is_alive"] is True
    assert site.by_http.get("/ready").status_code == 200
    site.panel.liveness = Liveness(silent_s={"lane-worker-0": 400.0}, is_alive=False)
    site.panel.readiness = Readiness(is_ready=False, reasons=["the store does not answer"])
    live, ready = site.by_http.get("/live"), site.by_http.get("/ready")
    assert (live.status_code, live.json()["silent_s"]) == (503, {"lane-worker-0": 400.0})
    assert (ready.status_code, ready.json()["reasons"]) == (503, ["the store does not answer"])


def test_there_is_nothing_else(site: Site) -> None:
    """No files, no folders, no other spelling, no other method; nor is that told to others."""
    for asked in ("/page", "/docs", "/openapi.json", "/status/", "/../etc/passwd"):
        assert "nothing at this path" in error(site.by_socket.get(asked), 404)
        error(site.by_http.get(asked), 401)
    for method, asked in (("POST", "/status"), ("OPTIONS", "/metrics"), ("GET", "/control")):
        found = site.by_socket.request(method, asked)
        error(found, 405)
        assert ("POST" in found.headers["allow"]) is (asked == "/control")


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"command=drain", "application/x-www-form-urlencoded", 415),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 8000, "application/json", 400),
        (b'{"command": "drain", "at": 5}', "application/json", 400),
        (b'{"command": "NaN"}', "application/json; charset=utf-8", 400),
        (b'"' + b"x" * http.LARGEST_BODY_BYTES + b'"', "application/json", 413),
    ],
)
def test_a_body_that_is_no_command_is_refused(
    site: Site, body: bytes, kind: str, status: int
) -> None:
    """And nobody is told anything."""
    error(site.by_socket.post("/control", content=body, headers={"content-type": kind}), status)
    assert not site.panel.told


def test_a_body_that_does_not_come_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that hangs is told and closed."""
    monkeypatch.setattr(http, "BODY_TIMEOUT_S", 0.1)
    request = (
        "POST /control HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {TOKEN}\r\ncontent-length: 20\r\n\r\n{{"
    )
    answer = raw(site.address, request.encode())
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()


def test_what_follows_a_refused_request_is_not_taken_for_another(site: Site) -> None:
    """A body that nobody may send is not read as a request of its own."""
    inner = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n"
    outer = b"POST /control HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(inner)
    answer = raw(site.address, outer + inner)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_every_answer_has_the_same_headers(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Errors as well, and bugs, which are logged and not shown; none says what serves it."""
    answers = [
        site.by_socket.get("/status"),
        site.by_socket.get("/nothing"),
        site.by_http.get("/control"),
        site.by_http.get("/metrics"),
    ]
    assert answers[-1].headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "migrator_handed_over_rows" in answers[-1].text
    site.panel.bug = RuntimeError("postgresql://u:secret@db")
    answers.append(site.by_socket.get("/status"))
    assert "secret" not in error(answers[-1], 500)
    assert site.by_socket.get("/live").status_code == 200
    (line,) = [r for r in caplog.records if getattr(r, "action", "") == "web_failed"]
    assert line.levelno == logging.ERROR
    for found in answers:
        assert {name: found.headers[name] for name in http.SECURITY_HEADERS} == dict(
            http.SECURITY_HEADERS
        )
        assert "uvicorn" not in str(found.headers).lower()


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────


def _held(address: tuple[str, int], sent: bytes, count: int = 70) -> list[socket.socket]:
    """Return connections that have sent so much, and are silent from now on."""
    held = [socket.create_connection(address, timeout=30) for _ in range(count)]
    for connection in held:
        connection.sendall(sent)
    return held


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /live HT",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /li",  # kept alive, then silent
    ],
)
def test_silent_connections_shut_nobody_out(site: Site, sent: bytes) -> None:
    """The one that was silent longest makes room for whoever asks, over either way in."""
    held = _held(site.address, sent)
    try:
        for _ in range(3):
            for path in ("/live", "/ready", "/metrics"):  # over a connection of its own each
                assert httpx.get(f"{site.by_http.base_url}{path}").status_code == 200
            assert site.by_socket.get("/live").status_code == 200
    finally:
        for connection in held:
            connection.close()


def test_connections_at_work_leave_room_for_the_health_paths(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many requests under way as one address may have, others of it are told 503."""
    monkeypatch.setattr(http, "BODY_TIMEOUT_S", 60.0)
    half = b"POST /control HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    held = _held(site.address, half, count=connections.MOST_OF_ADDRESS)
    try:
        deadline_s = time.monotonic() + 30
        metrics, live, ready = (
            f"{site.by_http.base_url}{path}" for path in ("/metrics", "/live", "/ready")
        )
        while httpx.get(metrics).status_code != 503:
            assert time.monotonic() < deadline_s
            held += _held(site.address, half, count=1)  # one that was late made room for another
        # a path in the name, of which older versions of Starlette make a part of the URL
        assert httpx.get(metrics, headers={"host": "localhost/live?"}).status_code == 503
        assert httpx.get(live).status_code == 200
        assert httpx.get(ready).status_code == 200
        assert site.by_socket.get("/metrics").status_code == 200
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize("begun", [b"", b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_connection_that_asks_nothing_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """Also one that was answered before; a byte now and then is no request."""
    monkeypatch.setattr(connections, "IDLE_S", 0.5)
    with serve(MemoryPanel(), WebPlan(listen=("127.0.0.1", 0)), Instruments()) as served:
        assert served.address is not None
        with closing(socket.create_connection(served.address, timeout=30)) as connection:
            connection.sendall(begun)
            if begun:
                assert connection.recv(9) == b"HTTP/1.1 "
            with suppress(ConnectionResetError, BrokenPipeError):
                deadline_s = time.monotonic() + 20
                while time.monotonic() < deadline_s:
                    connection.sendall(b"G")
                    time.sleep(0.05)
                pytest.fail("it was kept")


# ── beginning and end ───────────────────────────────────────────────────────────────────────


def test_nothing_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no file, no handler of a signal or of log lines; and it is quick."""

    def facts() -> object:
        root = logging.getLogger()
        signals = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        handlers = [*root.handlers, *logging.getLogger("uvicorn").handlers]
        return signals, root.level, handlers

    monkeypatch.setattr(connections, "IDLE_S", 60)
    before, threads = facts(), set(threading.enumerate())
    plan = WebPlan(socket=path, listen=("127.0.0.1", 0), token=TOKEN)
    with serve(MemoryPanel(), plan, Instruments()) as served:
        assert served.address is not None
        assert facts() == before
        with closing(socket.create_connection(served.address)):  # an idle one holds nothing up
            began_s = time.monotonic()
    assert time.monotonic() - began_s < 30
    assert facts() == before
    assert set(threading.enumerate()) <= threads
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(served.address)


def test_a_server_that_does_not_start_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything else is begun."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no server")

    monkeypatch.setattr("uvicorn.Server.startup", broken)
    with (
        pytest.raises(MigratorError, match="did not start"),
        serve(MemoryPanel(), WebPlan(socket=path), Instruments()),
    ):
        pass
    assert [getattr(record, "action", "") for record in caplog.records] == ["web_crashed"]
    assert not path.exists()


def test_the_token_is_in_no_log_line_and_no_plan(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Right or wrong, whatever is logged."""
    caplog.set_level(logging.DEBUG)
    wrong = {"authorization": "Bearer another secret thing"}
    site.by_http.get("/status", headers=BEARER)
    site.by_http.get("/control", headers=wrong)
    site.panel.bug = RuntimeError("x")
    site.by_http.get("/status", headers=BEARER)
    lines = json.dumps([record.__dict__ for record in caplog.records], default=str)
    assert TOKEN not in lines
    assert "another secret thing" not in lines
    assert TOKEN not in repr(WebPlan(token=TOKEN))


def test_a_socket_nobody_asked_for_keeps_nobody_from_working(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second daemon of a user goes on without one, and says so; the first keeps its own."""
    usual = WebPlan(socket=path, needs_socket=False)
    with (
        serve(MemoryPanel(), usual, Instruments()) as first,
        serve(MemoryPanel(), usual, Instruments()) as second,
    ):
        assert (first.socket, second.socket) == (path, None)
    told = [each for each in caplog.records if vars(each).get("action") == "web_socket_missing"]
    assert len(told) == 1
    assert "another process listens" in vars(told[0])["error"]


# ── whatever comes ──────────────────────────────────────────────────────────────────────────

_PIECES = st.sampled_from(
    [
        *(b"GET", b"POST", b"CONNECT", b" ", b"/live", b"/control", b"/page/login", b"//", b"*"),
        *(b"/ledger?place=%ff", b"http://[/x", b"%00", b"\xff", b"\0", b" HTTP/1.1", b" HTTP/9.9"),
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"\r\n\r\n",
            b":",
            b"Host: localhost",
            b"Host: [",
            b"Host: a/live?",
        ),
        *(
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Transfer-Encoding: chunked",
            b"5\r\nabcde",
        ),
        *(b"FFFFFFFFFFFFFFFF\r\n", b"Expect: 100-continue", b"Connection: upgrade", b"Origin: //["),
        *(b"Content-Type: application/json", f"Authorization: Bearer {TOKEN}".encode()),
        *(b"Content-Type: application/x-www-form-urlencoded", b"Authorization: Bearer \xff", b"["),
        *(b'{"command":"pause","\\ud800":1}', b'{"command":{}}', b"9" * 5000, b"name=%ud8&token"),
    ]
)
_REQUESTS = st.builds(
    lambda path, headers, body: b"\r\n".join(
        [
            b"POST " + path + b" HTTP/1.1",
            *(b"Host: localhost", *headers, b"Content-Length: %d" % len(body), b"", body),
        ]
    ),
    st.sampled_from([b"/control", b"/page/login", b"/status", b"/"]),
    st.lists(_PIECES, max_size=4),
    st.lists(_PIECES | st.binary(max_size=9), max_size=4).map(b"".join),
)


@pytest.mark.parametrize("waits", [False, True])
def test_a_body_that_is_no_http_gets_one_answer(
    site: Site, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also to a request that is answered before its body is there, and before that is refused."""
    with closing(socket.create_connection(site.address, timeout=30)) as connection:
        head = b"GET /live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head if waits else head + b"no chunk\r\n")
        answer = connection.recv(65_536)
        if waits:
            connection.sendall(b"no chunk\r\n")
        while told := connection.recv(65_536):
            answer += told
    assert answer.startswith(b"HTTP/1.1 200 " if waits else b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("examples", EXAMPLES)
def test_any_bytes_are_answered_or_refused(
    site: Site, examples: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No answer is a bug's, nothing is logged as one, and the next request is answered."""

    def ask(sent: bytes) -> None:
        connection = socket.create_connection(site.address, timeout=30)
        with closing(connection), suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while told := connection.recv(65_536):
                assert not told.startswith(b"HTTP/1.1 5"), told
        assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []

    fuzz(damaged(_REQUESTS | st.lists(_PIECES, max_size=12).map(b"".join)), ask, examples)
    assert site.by_http.get("/live").status_code == 200
