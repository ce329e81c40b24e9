"""The private servers and the proxy do what the other tests rely on."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from dev.servers import (
    PostgresServer,
    ServerFailedError,
    free_port,
)
from tests.conftest import Vhost
from tests.support.proxy import Proxy


def plain(url: str) -> str:
    """What psycopg itself understands."""
    return url.replace("+psycopg", "")


def test_a_port_that_another_process_was_given_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody may listen there yet, or no more; it is free again when that process has ended."""
    program = "from dev.processes import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr("dev.processes._PORTS", range(port, port + 1))
        with pytest.raises(ServerFailedError, match="no free port"):
            free_port()
        other.communicate("\n")
    assert free_port() == port


def test_servers_listen_on_loopback_only(vhost: Vhost, postgres_server: PostgresServer) -> None:
    """No socket of node, port mapper or database can be reached from outside."""
    pids = (vhost.node.pid, vhost.node.epmd.pid, postgres_server.pid)
    listening = [
        connection.laddr
        for pid in pids
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 5
    assert {address.ip for address in listening} <= {"127.0.0.1", "::1"}


def test_closing_leaves_nothing_behind() -> None:
    """A closed server has no process and no data folder."""
    server = PostgresServer().start()
    pid, folder = server.pid, Path(server.data_dir)
    server.close()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


# --- the proxy ----------------------------------------------------------------------------------


def test_proxy_cut_before_answer_hides_a_commit(
    database: str, proxy: Callable[[str], Proxy]
) -> None:
    """The server has committed, the client cannot know: the doubtful moment, made on purpose."""
    line = proxy(database)
    with psycopg.connect(plain(line.url(database)), autocommit=True) as connection:
        line.cut_before_answer()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    line.wait_for_cut()
    with psycopg.connect(plain(database)) as direct:
        assert direct.execute("SELECT n FROM t").fetchone() == (1,)


def test_proxy_cut_after_bytes_is_exact() -> None:
    """Exactly the bytes allowed reach the server."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy(*server.getsockname()) as line,
        socket.create_connection(("127.0.0.1", line.port)) as client,
        server.accept()[0] as accepted,
    ):
        line.cut_after_bytes(5)
        client.sendall(b"0123456789")
        line.wait_for_cut()
        assert line.forwarded("to_server") == 5
        assert accepted.recv(10) == b"01234"
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_proxy_stalls_and_resumes(direction: Any) -> None:
    """A deaf line keeps the connection and delivers everything once it hears again."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy(*server.getsockname()) as line,
        socket.create_connection(("127.0.0.1", line.port)) as client,
        server.accept()[0] as accepted,
    ):
        line.stall(direction)
        source, target = (client, accepted) if direction == "to_server" else (accepted, client)
        target.settimeout(0.2)
        source.sendall(b"patience")
        with pytest.raises(TimeoutError):
            target.recv(8)
        line.resume()
        target.settimeout(5)
        assert target.recv(8) == b"patience"


def test_proxy_refuses_new_connections(database: str, proxy: Callable[[str], Proxy]) -> None:
    """While refusing, open connections live on and new ones fail; accepting ends that."""
    line = proxy(database)
    url = plain(line.url(database))
    with psycopg.connect(url) as old:
        line.refuse()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        assert old.execute("SELECT 1").fetchone() == (1,)
    line.accept()
    psycopg.connect(url).close()
