"""The private servers and the proxy do what the other tests rely on."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import psycopg
import pytest

from dev.servers import PostgresServer
from tests.conftest import Vhost
from tests.support.proxy import Proxy


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


def test_proxy_cut_before_answer_hides_a_commit(
    database: str, proxy: Callable[[str], Proxy]
) -> None:
    """The server has committed, the client cannot know: the doubtful moment, made on purpose."""
    url = database.replace("+psycopg", "")
    line = proxy(url)
    with psycopg.connect(line.url(url), autocommit=True) as connection:
        line.cut_before_answer()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    assert line.cuts == 1
    with psycopg.connect(url) as direct:
        assert direct.execute("SELECT n FROM t").fetchone() == (1,)
