"""Connections to an account: kept, given up when the server closed them, and over TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from migrator.stores.azure.connections import Connections, UnansweredError, connections_to
from tests.conftest import TlsMaterial
from tests.support.http_proxy import Answer, HttpServer, Request


class Echo(HttpServer):
    """Answers with what it was asked."""

    def answer(self, request: Request) -> Answer:
        """See ``HttpServer``."""
        headers = {"ETag": "1", "Content-Type": "text/plain"}
        return Answer(status=200, headers=headers, body=f"{request.line} ".encode() + request.raw)


@contextmanager
def says_in_turn(*answers: bytes) -> Iterator[tuple[str, list[int]]]:
    """Serve each of *answers*, each on a connection that is closed after it; who came, by port."""
    seen = list[int]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, address = listener.accept()
                with connection:
                    connection.recv(65536)
                    seen.append(address[1])
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_connection_serves_many_requests() -> None:
    """Whatever was asked with the one before; a body that is too large costs a connection."""
    with Echo() as server, closing(Connections(f"http://127.0.0.1:{server.port}", 2)) as ours:
        answers = [ours.request("POST", "/a", {}, b"body", None) for _ in range(3)]
        assert {each.body for each in answers} == {b"POST /a body"}
        assert answers[0].headers["etag"] == "1"
        assert ours.request("GET", "/b", {}, None, 3).body is None
        assert ours.request("GET", "/b", {}, None, 100).body == b"GET /b "
        assert len(ours._kept) == 1


def test_what_a_server_closed_meanwhile_is_not_used_again() -> None:
    """Each next request has a connection of its own, and none has to be repeated."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo"
    with says_in_turn(chunked, plain) as (base, seen), closing(Connections(base, 1)) as ours:
        assert ours.request("GET", "/", {}, None, None).body == b"one"
        assert ours.request("GET", "/", {}, None, 3).body == b"two"
    assert len({*seen}) == 2


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"what?\r\n\r\n"]
)
def test_half_an_answer_is_none(answer: bytes) -> None:
    """Whoever asked has to repeat it."""
    with says_in_turn(answer) as (base, _), closing(Connections(base, 1)) as ours:
        with pytest.raises(UnansweredError):
            ours.request("GET", "/", {}, None, None)
        assert not ours._kept


def test_tls_wants_an_authority_that_is_known(
    tls_material: TlsMaterial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the environment, as with Azure's own client libraries."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls_material.server_cert, tls_material.server_key)
    with Echo(context) as server:
        base = f"https://localhost:{server.port}"
        with (
            closing(connections_to(base, 1)) as unknown,
            pytest.raises(UnansweredError, match="CertVerification"),
        ):
            unknown.request("GET", "/", {}, None, None)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tls_material.ca))
        with closing(connections_to(base, 1)) as known:
            for _ in range(2):
                assert known.request("GET", "/", {}, None, None).body == b"GET / "
