"""What the management API and the server itself tell about a real broker."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest

from migrator.errors import AccessRefused, ConfigError, TargetError, TargetUnavailable
from migrator.rabbitmq.connection import EntityAbsent, TlsFiles
from migrator.rabbitmq.management import ManagementApi, management_settings
from migrator.rabbitmq.server import find_queues, server_facts
from tests.conftest import Vhost
from tests.support.http_proxy import Answer, HttpServer, Request
from tests.unit.rabbitmq.material import api_of, connection, plain_channel, wait_until


def test_flags_and_alarms(vhost: Vhost) -> None:
    """Feature flags and alarms are read; the version by any connection."""
    with api_of(vhost) as management:
        assert management.feature_flags()["quorum_queue"] == "enabled"
        (node,) = management.nodes()
        assert (node.is_running, node.memory, node.disk) == (True, False, False)
        wait_until(lambda: management.nodes()[0].left_bytes)  # a young node tells no numbers yet
    facts = server_facts(connection(vhost.amqp_url))
    assert facts.release >= (3, 8)
    assert facts.product == "RabbitMQ"
    assert facts.frame_max_bytes == 131_072
    assert not vhost.node.api("GET", f"queues/{vhost.name}")  # the probe is gone


class _Collector(HttpServer):
    """A proxy that answers for everybody, and remembers what it was sent."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        self.sent.append(request)
        return Answer(status=200, body=b"[]")


def test_a_proxy_of_the_environment_gets_no_password(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The management API is asked directly, whatever the environment says of proxies."""
    with _Collector() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        with api_of(vhost) as management:
            assert management.feature_flags()["quorum_queue"] == "enabled"
    assert proxy.sent == []


def test_queues_are_told_with_policies_and_counts(vhost: Vhost) -> None:
    """A queue shows the policy that rules it, what waits in it, and who consumes."""
    vhost.node.set_policy(vhost.name, "short", pattern="^q", max_length=7)
    with plain_channel(vhost.amqp_url) as channel:
        for name in ("q.one/two", "q.three", "other"):
            channel.queue_declare(name, durable=True)
        channel.basic_publish("", "q.three", b"x")
        channel.basic_consume("other", lambda *_: None)
        found = find_queues(connection(vhost.amqp_url), ["q.three", "other", "none"])
    assert found["none"] is None
    assert found["q.three"] is not None
    assert found["q.three"].ready == 1
    assert found["other"] is not None
    assert found["other"].consumers == 1
    with api_of(vhost) as management:
        assert management.queue("none") is None
        wait_until(lambda: _told(management, "q.one/two") and _told(management, "q.three"))
        wait_until(lambda: _total(management, "q.three") == 1)  # counts come later than the rest
        one, three = management.queue("q.one/two"), management.queue("q.three")
        assert one is not None
        assert (one.policy, one.effective_policy) == ("short", {"max-length": 7})
        assert three is not None
        assert (three.total, three.ready, three.unacked, three.consumers) == (1, 1, 0, 0)
        assert {queue.name for queue in management.queues("^q\\.")} == {"q.one/two", "q.three"}
        assert list(management.queues("^nothing$")) == []


def _total(management: ManagementApi, name: str) -> int:
    found = management.queue(name)
    return 0 if found is None else found.total


def _told(management: ManagementApi, name: str) -> bool:
    queue = management.queue(name)
    return queue is not None and queue.is_told


def test_a_message_that_found_no_place_is_held_back(vhost: Vhost) -> None:
    """Messages that expired for nobody are counted apart from those that wait."""
    arguments = {
        "x-queue-type": "quorum",
        "x-message-ttl": 1,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "nowhere",
        "x-dead-letter-strategy": "at-least-once",
    }
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare("stuck", durable=True, arguments=arguments)
        channel.confirm_delivery()
        channel.basic_publish("", "stuck", b"x", pika.BasicProperties(delivery_mode=2))
    with api_of(vhost) as management:

        def is_held_back() -> bool:
            queue = management.queue("stuck")
            return queue is not None and queue.held_back == 1

        wait_until(is_held_back, seconds=60)


def test_bindings_are_told_by_source(vhost: Vhost) -> None:
    """Bindings of an exchange come with their kind; of an absent one there are none."""
    with plain_channel(vhost.amqp_url) as channel:
        channel.exchange_declare("a/b", "topic")
        channel.exchange_declare("c", "fanout")
        channel.queue_declare("q")
        channel.exchange_bind("c", "a/b", "x.#")
        channel.queue_bind("q", "a/b", "y")
    with api_of(vhost) as management:
        found = {(b.target.name, b.key, b.target_is_queue) for b in management.bindings_from("a/b")}
        assert found == {("c", "x.#", False), ("q", "y", True)}
        assert not management.bindings_from("absent")


def test_refusal_network_and_absence_are_told_apart(vhost: Vhost) -> None:
    """A wrong password, a silent port and something else on the port are three findings."""
    node = vhost.node
    wrong = f"http://guest:hush@127.0.0.1:{node.management_port}"
    with api_of(vhost, wrong) as management, pytest.raises(AccessRefused) as refused:
        management.feature_flags()
    assert "hush" not in str(refused.value)
    with (
        api_of(vhost, "http://127.0.0.1:9") as management,
        pytest.raises(TargetUnavailable, match="cannot be reached"),
    ):
        management.feature_flags()
    elsewhere = f"http://127.0.0.1:{node.management_port}/else"
    with api_of(vhost, elsewhere) as management, pytest.raises(EntityAbsent):
        management.feature_flags()


@contextmanager
def _stranger(status: int, body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://u:p@127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (200, b"<html>", TargetError, "not JSON"),
        (503, b"", TargetUnavailable, "503"),
        (200, b"[" + b"1," * (17 * 2**20) + b"1]", TargetError, "too large"),
    ],
)
def test_a_stranger_on_the_port_does_no_harm(
    vhost: Vhost, status: int, body: bytes, error: type[TargetError], words: str
) -> None:
    """Answers that are no JSON, no success or without end become errors."""
    with (
        _stranger(status, body) as url,
        api_of(vhost, url) as management,
        pytest.raises(error, match=words),
    ):
        management.feature_flags()


def test_the_address_of_the_api() -> None:
    """What is not given is taken from the broker's address; nonsense is refused."""
    address = connection("amqps://u%40x:hush@[::1]:5671/v").address
    default = management_settings(address, None, TlsFiles())
    assert default.url == "https://[::1]:15671"
    assert (default.user, default.password, default.vhost) == ("u@x", "hush", "v")
    other = management_settings(address, "http://a%40b:c%2Fd@h:1234/api-root/", TlsFiles())
    assert (other.url, other.user, other.password) == ("http://h:1234/api-root", "a@b", "c/d")
    assert "hush" not in repr(default)
    for nonsense in ("ftp://h", "http://", "http://h:port", "hush"):
        with pytest.raises(ConfigError) as refused:
            management_settings(address, nonsense, TlsFiles())
        assert "hush" not in str(refused.value)
