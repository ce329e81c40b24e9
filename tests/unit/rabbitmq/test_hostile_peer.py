"""What a broker, or who sits between us without TLS, sends by mistake or malice ends by itself."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest
from pika import frame, spec

from migrator.errors import TargetUnavailable
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.frames import RawMessage, keep_all
from tests.unit.rabbitmq.material import connection

MIB: Final = 2**20
FRAME_MAX_BYTES: Final = 8192
ENDLESS: Final = bytes(MIB)
HEAD: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQH")
_ANSWERS: Final[dict[type, Callable[[Any], Any]]] = {
    spec.Connection.StartOk: lambda _: spec.Connection.Tune(0, FRAME_MAX_BYTES, 0),
    spec.Connection.Open: lambda _: spec.Connection.OpenOk(),
    spec.Channel.Open: lambda _: spec.Channel.OpenOk(),
    spec.Connection.Close: lambda _: spec.Connection.CloseOk(),
    spec.Basic.Consume: lambda asked: spec.Basic.ConsumeOk(asked.consumer_tag),
}
_START: Final = frame.Method(0, spec.Connection.Start(0, 9, {}, "PLAIN", "en_US")).marshal()


class Peer:
    """Speaks the handshake, then sends what it was given, and its last piece without an end."""

    def __init__(self, *, start: bytes, after: type, sends: bytes, is_endless: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start, self._after, self._sends, self._is_endless = start, after, sends, is_endless
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def settings(self) -> ConnectionSettings:
        """Where it listens."""
        return connection(f"amqp://u:p@127.0.0.1:{self._listener.getsockname()[1]}/v")

    def close(self) -> None:
        """End it."""
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with contextlib.suppress(OSError), self._listener.accept()[0] as client:
            client.settimeout(10)
            client.recv(8)
            client.sendall(self._start)
            pending = b""
            while self._start == _START and (data := client.recv(MIB)):
                pending += data
                while (found := frame.decode_frame(pending))[0]:
                    pending = pending[found[0] :]
                    if self._answer(client, found[1]):
                        self._send(client)
            self._send(client)

    def _answer(self, client: socket.socket, asked: frame.Frame) -> bool:
        """Answer the client; return whether it is time for what is sent to it."""
        kind = type(getattr(asked, "method", None))
        if kind in _ANSWERS:
            answer = frame.Method(asked.channel_number, _ANSWERS[kind](asked.method))
            client.sendall(answer.marshal())
        return kind is self._after

    def _send(self, client: socket.socket) -> None:
        client.sendall(self._sends)
        while self._is_endless:
            self.sent_bytes += client.send(ENDLESS)


@contextmanager
def a_peer(
    sends: bytes,
    *,
    start: bytes = _START,
    after: type = spec.Basic.Consume,
    is_endless: bool = False,
) -> Iterator[Peer]:
    """Serve one client."""
    with closing(Peer(start=start, after=after, sends=sends, is_endless=is_endless)) as peer:
        yield peer


def a_frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    """Return a whole frame."""
    return HEAD.pack(kind, channel, len(payload)) + payload + b"\xce"


def a_delivery(body_bytes: int, more_properties: bytes = b"\0\0") -> bytes:
    """Return the frames before a body."""
    deliver = frame.Method(1, spec.Basic.Deliver("c", 1, False, "", "k")).marshal()
    return bytes(deliver) + a_frame(2, _CONTENT.pack(60, 0, body_bytes, 0)[:-2] + more_properties)


def receive(settings: ConnectionSettings) -> list[RawMessage]:
    """Return the first message that comes."""
    found: list[RawMessage] = []
    with closing(EventLoop()) as loop:
        lane = Connection(loop, settings, "test")
        lane.consume_messages(lane.channel(), "q", found.append, keep_all)
        deadline_s = time.monotonic() + 20
        while not found and time.monotonic() < deadline_s:
            loop.wait_for_event(1.0)
    return found


def ask(settings: ConnectionSettings) -> None:
    """Ask something on a short connection."""
    with admin_session(settings, purpose="test") as admin:
        admin.queue("q")


@pytest.mark.parametrize("client", [receive, ask])
@pytest.mark.parametrize("kind", [1, 2, 3, 8, 77])
def test_a_frame_without_an_end_is_refused_at_its_beginning(
    client: Callable[[ConnectionSettings], object], kind: int
) -> None:
    """Of whatever kind: no more arrives than the sockets of the two sides hold."""
    sends = HEAD.pack(kind, 1, 2**32 - 1)
    with (
        a_peer(sends, after=spec.Channel.Open, is_endless=True) as peer,
        pytest.raises(TargetUnavailable, match=r"frame of 4294967303 bytes > \d+"),
    ):
        client(peer.settings)
    assert peer.sent_bytes < 32 * MIB


def test_a_handshake_without_an_end_is_refused_at_its_beginning() -> None:
    """Before anything was negotiated."""
    sends = HEAD.pack(1, 0, 2**32 - 1)
    with (
        a_peer(ENDLESS, start=sends, is_endless=True) as peer,
        pytest.raises(TargetUnavailable, match="frame of 4294967303 bytes"),
    ):
        receive(peer.settings)
    assert peer.sent_bytes < 32 * MIB


@pytest.mark.parametrize("more_bytes", [0, 1])
def test_a_frame_may_be_as_large_as_negotiated(more_bytes: int) -> None:
    """One byte more ends the connection, even of a frame that arrives in one read."""
    body = bytes(FRAME_MAX_BYTES - 8 + more_bytes)
    with a_peer(a_delivery(len(body)) + a_frame(3, body)) as peer:
        if not more_bytes:
            assert [each.body for each in receive(peer.settings)] == [body]
            return
        with pytest.raises(TargetUnavailable, match="frame of 8193 bytes > 8192"):
            receive(peer.settings)


@pytest.mark.parametrize("client", [receive, ask])
def test_a_body_without_an_end_is_refused_when_it_is_announced(
    client: Callable[[ConnectionSettings], object],
) -> None:
    """Its frames may be small: no broker has a message of more than 512 MiB."""
    body = a_frame(3, bytes(1000))
    after = spec.Basic.Consume if client is receive else spec.Queue.Declare
    with (
        a_peer(a_delivery(2**63) + 1000 * body, after=after) as peer,
        pytest.raises(TargetUnavailable, match="body of 9223372036854775808 bytes"),
    ):
        client(peer.settings)


def test_properties_may_be_larger_than_negotiated() -> None:
    """RabbitMQ sends such, and never splits them; their parts are joined once."""
    took_s = []
    for size in (4 * MIB, 16 * MIB - 4096):
        table = b"\x01kS" + struct.pack(">I", size) + bytes(size)
        properties = b"\x20\0" + struct.pack(">I", len(table)) + table
        with a_peer(a_delivery(1, properties) + a_frame(3, b"x")) as peer:
            began_s = time.thread_time()
            (found,) = receive(peer.settings)
            took_s.append(time.thread_time() - began_s)
        assert (found.properties.raw, found.body) == (properties, b"x")
    assert took_s[1] < 8 * took_s[0] + 0.1
