"""A lane's link on a real broker: every answer matched, every failure told as what it is."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

import pika
import pytest

from dev.processes import free_port
from dev.servers import RabbitNode
from migrator.delays.topology import create_delays
from migrator.errors import AccessRefused, ClockInDoubt, LeaseLost, TargetError, TargetUnavailable
from migrator.handover.link import RabbitLink
from migrator.handover.ports import Delayed
from migrator.rabbitmq.connection import ConnectionSettings, TlsFiles
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.frames import RawMessage, keep_all
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.publisher import WindowLimits
from tests.conftest import TlsMaterial, Vhost
from tests.support.proxy import Proxy
from tests.unit.rabbitmq.material import (
    V2,
    an_attempt,
    chunks,
    connection,
    delayed,
    link_settings,
    opened,
    plain_channel,
    wait_until,
)

DAY_S = 86_400
PlaceProxy = Callable[[str], Proxy]


def _quiet(url: str) -> int:
    """Return how many wait once nothing comes any more of what was published."""
    found = -1
    while found != (found := _waiting(url)):
        time.sleep(0.2)
    return found


def _waiting(url: str) -> int:
    name = "nsb.v2.delay-level-16"
    with plain_channel(url) as channel:
        return int(channel.queue_declare(name, passive=True).method.message_count)


def test_an_unroutable_message_is_matched_to_its_row(url: str) -> None:
    """Of overdue messages, only that for an unbound destination is returned."""
    with plain_channel(url) as channel:
        channel.queue_declare("here", durable=True)
        channel.queue_bind("here", "nsb.v2.delay-delivery", "#.here")
    settled = PublishResult()
    messages = [delayed(0, row, destination="here" if row % 3 else "nowhere") for row in range(300)]
    with opened(link_settings(url)) as link:
        link.publish(an_attempt(), chunks(messages), settled)
    assert settled.returned == set(range(0, 300, 3))
    assert settled.confirmed == set(range(300)) - settled.returned


def test_refused_rows_are_in_neither_set(vhost: Vhost) -> None:
    """A row that the level queue refused is told neither confirmed nor returned, and is nowhere."""
    pattern = r"^nsb\.v2\.delay-level-16$"
    vhost.node.set_policy(vhost.name, "small", pattern=pattern, max_length=5)
    create_delays(connection(vhost.amqp_url), V2)
    confirmed = 0
    with opened(link_settings(vhost.amqp_url)) as link:
        for number in range(1, 6):
            settled = PublishResult()
            link.publish(
                an_attempt(1, number), chunks(delayed(DAY_S, row) for row in range(300)), settled
            )
            confirmed += len(settled.confirmed)
            assert not settled.returned
    assert confirmed < 1500
    wait_until(lambda: _waiting(vhost.amqp_url) == confirmed)


def test_nothing_is_sent_once_the_guard_says_so(fresh_url: str) -> None:
    """However much room there is: an owner that lost its lane publishes no row more."""
    lost, settled = threading.Event(), PublishResult()

    def guard() -> None:
        if lost.is_set():
            raise LeaseLost("lane 0: the lease no longer belongs to this process")

    def messages() -> Iterator[Delayed]:
        for row in range(1000):
            if row == 200:
                lost.set()
            yield delayed(DAY_S, row)

    with opened(link_settings(fresh_url), guard=guard) as link, pytest.raises(LeaseLost):
        link.publish(an_attempt(), chunks(messages()), settled)
    assert _quiet(fresh_url) <= 200


def test_large_bodies_arrive_whole(url: str) -> None:
    """Bodies of many frames are split and joined; the output buffer stays small meanwhile."""
    bodies = {row: bytes([row]) * (1_000_000 + row) for row in range(20)}
    largest = 0
    with plain_channel(url) as channel:
        channel.queue_declare("large", durable=True)
        channel.queue_bind("large", "nsb.v2.delay-delivery", "#.large")

    def messages(link: RabbitLink) -> Iterator[Delayed]:
        nonlocal largest
        for row, body in bodies.items():
            largest = max(largest, link._connection.buffered_bytes)
            yield delayed(0, row, destination="large", body=body)

    with opened(link_settings(url)) as link:
        link.publish(an_attempt(), chunks(messages(link)), PublishResult())
    assert largest < 3_000_000
    with plain_channel(url) as channel:
        for row in range(20):
            _, properties, body = channel.basic_get("large", auto_ack=True)
            assert properties.app_id.endswith(f".{row}")
            assert body == bodies[row]


def test_properties_that_outgrew_a_frame_are_read(url: str) -> None:
    """RabbitMQ adds ``x-death`` to headers that filled one, and sends them in one all the same."""
    found: list[RawMessage] = []
    with plain_channel(url) as channel:
        channel.queue_declare("grown", durable=True)
        arguments = {
            "x-message-ttl": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "grown",
        }
        channel.queue_declare("growing", durable=True, arguments=arguments)
        properties = pika.BasicProperties(headers={"k": "v" * 131_000})
        channel.basic_publish("", "growing", b"{}", properties)
    with closing(EventLoop()) as loop:
        lane = Connection(loop, connection(url), "test")
        lane.consume_messages(lane.channel(), "grown", found.append, keep_all)
        deadline_s = time.monotonic() + 10
        while not found and time.monotonic() < deadline_s:
            loop.wait_for_event(1.0)
        assert lane.frame_max_bytes < len(found[0].properties.raw)
    assert found[0].body == b"{}"


@pytest.mark.parametrize(
    ("limits", "body_bytes", "most"),
    [
        (WindowLimits(messages=100, confirm_deadline_s=1), 10, 100),
        (WindowLimits(body_bytes=100_000, confirm_deadline_s=1), 1000, 100),
    ],
)
def test_the_window_bounds_what_is_drawn(
    url: str, proxy: PlaceProxy, limits: WindowLimits, body_bytes: int, most: int
) -> None:
    """While the broker is silent, no more is drawn than the window; the deadline ends it."""
    line = proxy(url)
    drawn = 0

    def messages() -> Iterator[Delayed]:
        nonlocal drawn
        for row in range(10_000):
            drawn += 1
            yield delayed(DAY_S, row, body=b"x" * body_bytes)

    settled = PublishResult()
    with opened(link_settings(line.url(url), limits=limits)) as link:
        line.stall("to_client")
        with pytest.raises(TargetUnavailable, match="has not answered for 1 s"):
            link.publish(an_attempt(), chunks(messages()), settled)
    assert drawn == most
    assert settled == PublishResult()


def test_what_a_broken_off_attempt_is_owed_is_not_counted_for_the_next(
    url: str, proxy: PlaceProxy
) -> None:
    """Answers to messages of an attempt that broke off do not settle rows of a later one."""
    line = proxy(url)

    def broken_off() -> Iterator[Delayed]:
        for row in range(200):
            yield delayed(DAY_S, row)
        raise RuntimeError("the lease is lost")

    first, second = PublishResult(), PublishResult()
    with opened(link_settings(line.url(url))) as link:
        line.stall("to_client")
        with pytest.raises(RuntimeError):
            link.publish(an_attempt(attempt=1), chunks(broken_off()), first)
        line.resume()
        link.publish(an_attempt(attempt=2), chunks([delayed(DAY_S, 150)]), second)
        assert second.confirmed == {150}
        link.idle(0.2)
    assert first.confirmed <= set(range(200))
    assert second.confirmed == {150}


def test_what_is_sent_before_the_clock_jumps_is_answered(fresh_url: str) -> None:
    """Else it would be sent again, although no connection was lost."""

    def messages() -> Iterator[Delayed]:
        for row in range(100):
            yield delayed(DAY_S, row)
        raise ClockInDoubt("it jumped", earliest=datetime.now(UTC))

    settled = PublishResult()
    with opened(link_settings(fresh_url)) as link:
        with pytest.raises(ClockInDoubt):
            link.publish(an_attempt(), chunks(messages()), settled)
        confirmed = len(settled.confirmed)
    assert 0 < confirmed == _quiet(fresh_url)


@pytest.mark.parametrize("count", [0, 1, 7, 500, 40_000, 99_999])
def test_a_wire_cut_at_any_byte_leaves_the_truth(url: str, proxy: PlaceProxy, count: int) -> None:
    """After a cut, every row that is told confirmed is in the broker, none is told returned."""
    line, before = proxy(url), _waiting(url)
    settled = PublishResult()
    with opened(link_settings(line.url(url))) as link:
        line.cut_after_bytes(count)
        with pytest.raises(TargetUnavailable):
            link.publish(an_attempt(), chunks(delayed(DAY_S, row) for row in range(2000)), settled)
        with pytest.raises(TargetUnavailable):
            link.idle(0)
    assert not settled.returned
    wait_until(lambda: _waiting(url) >= before + len(settled.confirmed))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_around_the_answer_leaves_the_truth(
    fresh_url: str, proxy: PlaceProxy, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A confirm that never came is not told; the message is in the broker all the same."""
    monkeypatch.setattr("migrator.rabbitmq.connection.HEARTBEAT_S", 60)  # one is no answer
    line = proxy(fresh_url)
    settled = PublishResult()
    with opened(link_settings(line.url(fresh_url))) as link:
        line.cut_before_answer() if when == "before" else line.cut_after_answer()
        with pytest.raises(TargetUnavailable):
            _publish_and_idle(link, settled)
    assert settled.confirmed == (set() if when == "before" else {0})
    wait_until(lambda: _waiting(fresh_url) == 1)


def _publish_and_idle(link: RabbitLink, settled: PublishResult) -> None:
    link.publish(an_attempt(), [[delayed(DAY_S)]], settled)
    link.idle(10)


def test_an_entry_without_its_level_ends_the_link(url: str) -> None:
    """A delayed message that is returned is no destination's fault; the next link heals it."""
    settled = PublishResult()
    with opened(link_settings(url)) as link:
        with plain_channel(url) as channel:
            channel.queue_unbind("nsb.v2.delay-level-16", "migrator.entry.v2.16", "")
        with pytest.raises(
            TargetUnavailable, match=r"migrator\.entry\.v2\.16 no longer leads to a queue"
        ):
            link.publish(an_attempt(), [[delayed(DAY_S)]], settled)
    assert settled == PublishResult()
    with opened(link_settings(url)) as link:
        link.publish(an_attempt(), [[delayed(DAY_S)]], settled)
    assert settled.confirmed == {0}


@pytest.mark.slow
def test_a_memory_alarm_blocks_with_a_reason_and_then_goes_on(alarm_vhost: Vhost) -> None:
    """During an alarm nothing is confirmed and the reason is told; afterwards all is.

    The broker's list of connections says whose they are, and what for.
    """
    url = alarm_vhost.amqp_url
    create_delays(connection(url), V2)
    reasons: list[str | None] = []
    settled = PublishResult()

    def end_the_alarm(link: RabbitLink) -> None:
        wait_until(lambda: link.blocked_reason is not None)
        reasons.append(link.blocked_reason)
        reasons.append(str(settled.confirmed))
        alarm_vhost.node.set_memory_limit()

    alarm_vhost.node.set_memory_limit(10**6)
    with opened(link_settings(url)) as link:
        helper = threading.Thread(target=end_the_alarm, args=(link,))
        helper.start()
        link.publish(an_attempt(), chunks(delayed(DAY_S, row) for row in range(5000)), settled)
        helper.join()
        reasons.append(link.blocked_reason)
        listed = alarm_vhost.node.ctl("list_connections", "client_properties")
        assert "migrator tester lane 0 publish" in listed
    assert reasons == ["low on memory", "set()", None]
    assert settled.confirmed == set(range(5000))


@pytest.mark.punctual
def test_an_alarm_that_blocks_too_long_is_given_up(alarm_vhost: Vhost) -> None:
    """Past the deadline a blocked link dies, and closing it does not hang."""
    create_delays(connection(alarm_vhost.amqp_url), V2)
    alarm_vhost.node.set_memory_limit(10**6)
    with opened(link_settings(alarm_vhost.amqp_url, blocked_deadline_s=1.0)) as link:
        with pytest.raises(TargetUnavailable, match="blocked this connection past the deadline"):
            link.publish(an_attempt(), [[delayed(DAY_S)]], PublishResult())
        began_s = time.monotonic()
        link.close()
        assert time.monotonic() - began_s < 8


@pytest.mark.punctual
def test_a_stalled_wire_does_not_hold_up_closing(url: str, proxy: PlaceProxy) -> None:
    """Closing a link nobody answers on takes two seconds at most, and twice is fine."""
    line = proxy(url)
    with opened(link_settings(line.url(url))) as link:
        line.stall("to_client")
        began_s = time.monotonic()
        link.close()
        link.close()
        assert time.monotonic() - began_s < 8
        with pytest.raises(TargetUnavailable, match="closed"):
            link.idle(0)


def test_without_rights_the_native_exchanges_are_used(
    vhost: Vhost, fresh_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A user who may not declare entries publishes through the vendor's exchanges."""
    vhost.node.add_user("plain", "pw")
    vhost.node.set_permissions(vhost.name, "plain", configure="^$", write="^nsb", read="^nsb")
    limited = vhost.node.amqp_url(vhost.name, user="plain", password="pw")
    settled = PublishResult()
    with caplog.at_level(logging.WARNING, "migrator"), opened(link_settings(limited)) as link:
        link.publish(an_attempt(), [[delayed(DAY_S)]], settled)
    assert settled.confirmed == {0}
    assert [r.action for r in caplog.records if hasattr(r, "action")] == [
        "entries_refused",
        "lane_unguarded",
    ]
    exchanges = vhost.node.api("GET", f"exchanges/{quote(vhost.name, safe='')}")
    assert not any(row["name"].startswith("migrator.") for row in exchanges)


def test_opening_tells_refusal_absence_and_network_apart(url: str, vhost: Vhost) -> None:
    """Wrong password, absent virtual host, no server, no delays and no rights are five findings."""
    vhost.node.add_user("reader", "pw")
    vhost.node.set_permissions(url.rpartition("/")[2], "reader", configure="^$", write="^$")
    findings: list[tuple[str, type[TargetError], str]] = [
        (url.replace("guest:guest", "guest:wrong"), AccessRefused, "refused user 'guest'"),
        (url.replace("/shared-", "/other-"), AccessRefused, "no virtual host"),
        ("amqp://guest:guest@127.0.0.1:9/x", TargetUnavailable, "cannot be reached"),
        (vhost.amqp_url, TargetError, r"no queue 'nsb\.v2\.delay-level-00'"),
        (url.replace("guest:guest", "reader:pw"), AccessRefused, r"nsb\.v2\.delay-level-16"),
    ]
    for wrong, error, words in findings:
        use_entries = "reader" not in wrong
        with (
            pytest.raises(error, match=words),
            opened(link_settings(wrong, use_entries=use_entries)) as link,
        ):
            link.publish(an_attempt(), [[delayed(DAY_S)]], PublishResult())


def test_a_handshake_cut_at_any_byte_may_be_tried_again(url: str, proxy: PlaceProxy) -> None:
    """A wire that breaks while a connection is opened never looks like a refused password."""
    for count in (0, 8, 30, 200, 420, 450):
        line = proxy(url)
        line.cut_after_bytes(count)
        with pytest.raises(TargetUnavailable), opened(link_settings(line.url(url))):
            pass


def test_each_address_of_a_name_is_tried(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nobody listens at the first, nor at the node before."""
    live, real = connection(url).address, socket.getaddrinfo

    def resolve(host: str, *args: object, **options: object) -> object:
        if host != "cluster.test":
            return real(host, *args, **options)  # type: ignore[arg-type]
        addresses = "127.0.0.2", "127.0.0.1"
        return [each for a in addresses for each in real(a, live.port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    nodes = replace(live, port=free_port()), replace(live, host="cluster.test")
    settings = replace(link_settings(url), connection=ConnectionSettings(nodes=nodes))
    with opened(settings):
        assert settings.connection.address == nodes[1]


def test_tls_with_our_authority_and_a_client_certificate(
    rabbit_tls_node: RabbitNode, tls_material: TlsMaterial
) -> None:
    """A broker that demands certificates is reached with them, and told apart without."""
    address = rabbit_tls_node.amqps_url("/")
    complete = TlsFiles(
        ca_file=tls_material.ca,
        cert_file=tls_material.client_cert,
        key_file=tls_material.client_key,
    )
    create_delays(connection(address, tls=complete), V2)
    settled = PublishResult()
    with opened(link_settings(address, tls=complete)) as link:
        messages = [delayed(DAY_S, row, body=b"x" * 200_000) for row in range(30)]
        link.publish(an_attempt(), chunks(messages), settled)
        link.staging()
    assert settled.confirmed == set(range(30))
    with pytest.raises(TargetError, match="certificate was not accepted"):
        create_delays(connection(address), V2)
    without = TlsFiles(ca_file=tls_material.ca)
    with pytest.raises(TargetUnavailable):
        create_delays(connection(address, tls=without), V2)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_link_that_is_served_once_a_second_outlives_a_long_wait(url: str) -> None:
    """As while a claim of documents takes its time; unserved, the broker would close it."""
    with opened(link_settings(url)) as served, opened(link_settings(url), lane=1) as silent:
        for _ in range(30):
            time.sleep(1.0)
            served.serve()
        with pytest.raises(TargetUnavailable):
            silent.idle(1.0)
        served.idle(1.0)
