"""The private servers and the proxy do what the other tests rely on."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import psutil
import psycopg
import pytest

from dev.servers import (
    MariadbServer,
    PostgresServer,
    RabbitNode,
    RavenServer,
    ServerFailedError,
    free_port,
    wait_until,
)
from tests.conftest import TlsMaterial, Vhost
from tests.support.proxy import Proxy


@contextmanager
def channel(url: str) -> Iterator[Any]:
    """A channel with publisher confirms on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        with suppress(pika.exceptions.AMQPError):  # the test may have killed the other end
            connection.close()


def plain(url: str) -> str:
    """What psycopg itself understands."""
    return url.replace("+psycopg", "")


def test_vhosts_are_isolated(vhost: Vhost) -> None:
    """A queue of one virtual host does not exist in another."""
    vhost.node.create_vhost("other")
    with channel(vhost.amqp_url) as here, channel(vhost.node.amqp_url("other")) as there:
        here.queue_declare("letters")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            there.queue_declare("letters", passive=True)
    vhost.node.delete_vhost("other")


def test_a_confirmed_message_survives_kill_9(rabbit_node: RabbitNode) -> None:
    """What a quorum queue has confirmed is there after the node was killed and started again.

    As soon as the queue's name is on disk; the broker writes that only after a moment (measured:
    more than 0.5 s, less than 2 s), and killed before, it never finds the queue's log again. The
    node is the test's own: that of the session is to have its dead-letter workers afterwards.
    """
    assert rabbit_node.running  # where no node can be had, the test is skipped by this fixture
    with RabbitNode() as node:
        with channel(node.amqp_url()) as before:
            before.queue_declare("letters", durable=True, arguments={"x-queue-type": "quorum"})
            before.basic_publish("", "letters", b"still here", mandatory=True)
            node.write_names()
            node.kill()
        assert not node.running
        node.start()
        with channel(node.amqp_url()) as after:
            found: list[bytes] = []

            def is_there() -> bool:
                found.append(after.basic_get("letters", auto_ack=True)[2])
                return found[-1] is not None

            wait_until(is_there, what="the message")
    assert found[-1] == b"still here"


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


def test_feature_flags_are_enabled(vhost: Vhost) -> None:
    """Every stable feature flag of the node is on, streams and quorum queues among them."""
    flags = {flag["name"]: flag for flag in vhost.node.api("GET", "feature-flags")}
    assert flags["stream_queue"]["state"] == "enabled"
    stable = [flag for flag in flags.values() if flag["stability"] != "experimental"]
    assert {flag["state"] for flag in stable} == {"enabled"}


def test_a_user_sees_only_what_it_may(vhost: Vhost) -> None:
    """Permissions given over the management API hold."""
    vhost.node.add_user("reader", "secret")
    vhost.node.set_permissions(vhost.name, "reader", configure="^$", write="^$")
    url = vhost.node.amqp_url(vhost.name, user="reader", password="secret")
    with (
        channel(url) as limited,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"),
    ):
        limited.queue_declare("letters")


def test_tls_node_demands_a_client_certificate(
    rabbit_tls_node: RabbitNode, tls_material: TlsMaterial
) -> None:
    """A client certificate of the same authority opens the door of the TLS listener."""
    context = ssl.create_default_context(cafile=tls_material.ca)
    parameters = pika.URLParameters(rabbit_tls_node.amqps_url())
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)
    context.load_cert_chain(tls_material.client_cert, tls_material.client_key)
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    connection = pika.BlockingConnection(parameters)
    assert connection.is_open
    connection.close()


def test_databases_are_separate_copies(postgres_server: PostgresServer) -> None:
    """A database made from a template holds its rows and leaves the template alone."""
    template = postgres_server.create_database()
    postgres_server.psql("CREATE TABLE t AS SELECT 1 AS n", template)
    copy = postgres_server.create_database(template=template)
    postgres_server.psql("INSERT INTO t VALUES (2)", copy)
    assert postgres_server.psql("SELECT count(*) FROM t", copy) == "2"
    assert postgres_server.psql("SELECT count(*) FROM t", template) == "1"
    postgres_server.drop_database(copy)
    postgres_server.drop_database(template)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_postgres_comes_back_with_its_rows(
    postgres_server: PostgresServer, database: str, mode: Any
) -> None:
    """Committed rows are there after a restart, also after one without a checkpoint."""
    with psycopg.connect(plain(database)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    postgres_server.restart(mode)
    with psycopg.connect(plain(database)) as connection:
        assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_mariadb_comes_back_with_its_rows_after_a_crash(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    """What was committed is there after ``kill -9``, and only this machine can ask."""
    name = mariadb_database.rpartition("/")[2]
    mariadb_server.sql("CREATE TABLE t AS SELECT 1 AS n", name)
    mariadb_server.kill()
    mariadb_server.start()
    assert mariadb_server.sql("SELECT n FROM t", name) == "1"
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(mariadb_server.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_ravendb_comes_back_with_its_documents_after_a_crash(
    raven_server: RavenServer, raven_database: str
) -> None:
    """What was stored is there after ``kill -9``, and only this machine can ask."""
    path = f"databases/{raven_database}/docs?id=letters/1"
    raven_server.api("PUT", path, {"text": "still here"})
    raven_server.kill()
    raven_server.start()
    (found,) = raven_server.api("GET", path)["Results"]
    assert found["text"] == "still here"
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(raven_server.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_closing_leaves_nothing_behind() -> None:
    """A closed server has no process and no data folder."""
    server = PostgresServer().start()
    pid, folder = server.pid, Path(server.data_dir)
    server.close()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


# --- the proxy ----------------------------------------------------------------------------------


def test_proxy_cut_reaches_the_client(database: str, proxy: Callable[[str], Proxy]) -> None:
    """After a cut the old connection is dead, and a new one works."""
    line = proxy(database)
    url = plain(line.url(database))
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
        line.cut()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert line.cuts == 1


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


def test_proxy_cut_after_answer_lets_one_through(
    database: str, proxy: Callable[[str], Proxy]
) -> None:
    """The first answer arrives; the next question finds the line dead."""
    line = proxy(database)
    with psycopg.connect(plain(line.url(database)), autocommit=True) as connection:
        line.cut_after_answer()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        line.wait_for_cut()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


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


def test_proxy_lets_go_of_closed_connections(database: str, proxy: Callable[[str], Proxy]) -> None:
    """A connection that ended in good order is forgotten, and was no cut."""
    line = proxy(database)
    with psycopg.connect(plain(line.url(database))):
        assert line.connections == 1
    wait_until(lambda: line.connections == 0, seconds=30, what="the proxy did not let go")
    assert line.cuts == 0


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


def test_proxy_carries_amqp(vhost: Vhost, proxy: Callable[[str], Proxy]) -> None:
    """A confirmed publish passes the proxy, and a cut is a lost stream to pika."""
    line = proxy(vhost.amqp_url)
    with channel(line.url(vhost.amqp_url)) as open_channel:
        open_channel.queue_declare("letters")
        open_channel.basic_publish("", "letters", b"x", mandatory=True)
        line.cut_before_answer()
        with pytest.raises(pika.exceptions.AMQPError):
            open_channel.basic_publish("", "letters", b"y", mandatory=True)
    with channel(vhost.amqp_url) as direct:
        deadline = time.monotonic() + 30
        count = 0
        while count < 2 and time.monotonic() < deadline:
            count = direct.queue_declare("letters", passive=True).method.message_count
    assert count == 2
