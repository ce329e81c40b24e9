"""The private servers are what the other tests, and their users, rely on."""

from __future__ import annotations

import psutil

from dev.servers import PostgresServer
from tests.conftest import Vhost


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
