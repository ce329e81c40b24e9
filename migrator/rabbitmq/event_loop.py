"""Connections of one lane, driven by the lane's own thread: no other thread, no lock.

Rules, each learned from how pika works:

* pika's loop is run step by step, as its own BlockingConnection does it; nothing happens on
  a connection (heartbeats, confirms, deliveries) unless a caller runs the loop;
* callbacks only note what happened and never raise: pika would turn an exception in one into a
  lost connection. What was noted is judged after the step;
* the first thing that goes wrong with any connection fails the loop for good, with its reason;
* what pika keeps private (reading and sending frames, the size of its reads and of its output
  buffer, giving up a connection without a farewell) is used in ``PikaConnection``, nowhere else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import ChannelClosedByClient, ConnectionClosedByClient
from pika.frame import Header, Heartbeat

from migrator.errors import TargetError, TargetUnavailable
from migrator.rabbitmq.addresses import BrokerAddress
from migrator.rabbitmq.connection import (
    PIKA_FAILURES,
    ConnectionSettings,
    closing_error,
    opening_error,
    pika_parameters,
)
from migrator.rabbitmq.frames import (
    ChooseKeep,
    FrameReader,
    OnConfirm,
    OnDelivery,
    OnMessage,
    check_body,
    keep_all,
    missing_bytes,
    read_content_header,
)

_OPEN_TIMEOUT_S: Final = 20.0
_ANSWER_TIMEOUT_S: Final = 30.0
_FAREWELL_S: Final = 1.5
_READ_BYTES: Final = 64 * 1024


class PikaConnection(SelectConnection):  # type: ignore[misc]  # pika ships no types
    """Adds what pika has, but keeps to itself; and bounds what the peer makes us keep.

    Until a frame is whole, its parts are only collected: each byte is copied a few times,
    however large the frame is.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.reader = FrameReader()
        self.heard_s = time.monotonic()
        """When the broker last sent anything but a heartbeat."""
        self._parts = list[bytes]()
        """Of a frame that is not whole."""
        self._missing_bytes = 0
        super().__init__(*args, **options)

    def _proto_connection_made(self, transport: Any) -> None:
        """Read more at a time than pika's 4 KiB."""
        transport._MAX_RECV_BYTES = _READ_BYTES
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        """Handle each frame that is whole by now: those of ``reader`` at once, pika's as pika does.

        What pika does may empty the buffer, when the connection ends.

        Raises:
            InvalidFrameError: A frame or a body is too large; pika ends the connection.
        """
        self._parts.append(data_in)
        self._missing_bytes -= len(data_in)
        if self._missing_bytes > 0:
            return
        self._frame_buffer = b"".join(self._parts)
        self._parts.clear()
        self.reader.frame_max_bytes = self.params.frame_max
        while self._frame_buffer:
            consumed = self.reader.read(self._frame_buffer)
            if consumed:
                self.heard_s = time.monotonic()
                self._trim_frame_buffer(consumed)
                continue
            self._missing_bytes = missing_bytes(self._frame_buffer, self.params.frame_max)
            if self._missing_bytes > 0:
                self._parts.append(self._frame_buffer)
                return
            consumed, frame = self._read_frame()
            if not isinstance(frame, Heartbeat):
                self.heard_s = time.monotonic()
            if isinstance(frame, Header):
                check_body(frame.body_size)
            self._trim_frame_buffer(consumed)
            self._process_frame(frame)
        self._missing_bytes = 0

    def send_frames(self, frames: Sequence[bytes | memoryview]) -> None:
        """Append frames that are already in wire format to the output."""
        self._output_marshaled_frames(frames)

    def buffered_bytes(self) -> int:
        """Return how much output the socket has not taken yet."""
        return 0 if self._transport is None else int(self._get_write_buffer_size())

    def abandon(self) -> None:
        """Close the socket without a farewell."""
        if self._transport is not None:
            self._terminate_stream(ConnectionClosedByClient(320, "abandoned"))


class _LanePikaConnection(PikaConnection):
    """Has properties of messages read by our own reader, when they are asked for.

    Those of strangers must not end a connection, and reading all takes long.
    """

    def _read_frame(self) -> tuple[int, Any]:
        found = read_content_header(self._frame_buffer)
        if found is None:
            return super()._read_frame()  # type: ignore[no-any-return]  # pika ships no types
        consumed, channel, body_bytes, properties = found
        return consumed, Header(channel, body_bytes, properties)


class EventLoop:
    """Runs what happens on the connections of one lane, while a caller waits for it.

    *guard* is called again and again while a caller waits, and before anything is published:
    a sign of life. It raises when waiting and publishing must end.
    """

    def __init__(self, guard: Callable[[], None] | None = None) -> None:
        self.guard = guard or _nothing
        self.ioloop: Any = IOLoop()
        """What connections are opened on."""
        self.ioloop.activate_poller()
        self._failure: TargetError | None = None
        self._is_closed = False
        self._connections: list[Connection] = []

    def fail(self, error: TargetError) -> None:
        """Remember the first thing that went wrong; everything that waits ends with it."""
        if self._failure is None:
            self._failure = error

    def check(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            TargetUnavailable: A connection went away.
            TargetError: The broker refused something.
        """
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args) from self._failure
        if self._is_closed:
            raise TargetUnavailable("the link is closed")

    def wait_for_event(self, timeout_s: float) -> None:
        """Serve the connections once something arrives, or after the timeout.

        Raises as ``check`` and the guard do.
        """
        self.check()
        self.guard()
        self.step(timeout_s)
        self.check()

    def events(self, timeout_s: float) -> Iterator[None]:
        """Yield at once, and each time that something has arrived, until the timeout.

        Raises as ``wait_for_event`` does.
        """
        ends_s = time.monotonic() + timeout_s
        yield
        while (left_s := ends_s - time.monotonic()) > 0:
            self.wait_for_event(left_s)
            yield

    def step(self, wait_s: float) -> None:
        """Handle what is ready; wait for it at most *wait_s* seconds. Does not raise."""
        if self._is_closed:
            return
        bound = self.ioloop.call_later(wait_s, _nothing)
        try:
            self.ioloop.poll()
            self.ioloop.process_timeouts()
        except Exception as exc:  # pika also asserts, and looks into what a lost peer has emptied
            broken = TargetUnavailable(f"the connection broke: {exc!r}")
            broken.__cause__ = exc
            self.fail(broken)
        finally:
            self.ioloop.remove_timeout(bound)

    def serve(self) -> None:
        """Do what is due (heartbeats), without waiting, and give no sign of life.

        Raises as ``check`` does.
        """
        self.check()
        self.step(0.0)
        self.check()

    @property
    def silent_s(self) -> float:
        """For how many seconds the broker has sent nothing but heartbeats."""
        now_s = time.monotonic()
        return min((now_s - each.heard_s for each in self._connections), default=0.0)

    def adopt(self, connection: Connection) -> None:
        """Take care of closing *connection*, however often it is told to."""
        if connection not in self._connections:
            self._connections.append(connection)

    def close(self) -> None:
        """Close every connection, within about two seconds; never raises."""
        if self._is_closed:
            return
        for connection in self._connections:
            connection.begin_close()
        self._wind_down(_FAREWELL_S)
        for connection in self._connections:
            connection.abandon()
        self._wind_down(_FAREWELL_S / 3)
        self._is_closed = True
        with contextlib.suppress(Exception):
            self.ioloop.close()

    def _wind_down(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while (
            not all(connection.is_closed for connection in self._connections)
            and time.monotonic() < deadline_s
        ):
            with contextlib.suppress(Exception):
                self.step(0.05)


def _nothing() -> None:
    """Do nothing: of a timer only the time counts, when pika stops waiting for sockets."""


class Connection:
    """One connection to the broker on a loop; made by ``open_link``.

    Raises:
        AccessRefused: Wrong user, password or virtual host.
        TargetUnavailable: No node answered.
    """

    def __init__(self, loop: EventLoop, settings: ConnectionSettings, name: str) -> None:
        self.loop = loop
        self.blocked_reason: str | None = None
        self.prefetch_bytes = settings.prefetch_bytes
        """Bytes of received messages in memory at a time, and one message more."""
        self._is_open = False
        self._is_closing = False
        self._refused: TargetError | None = None
        try:
            settings.try_nodes(lambda address: self._connect(settings, address, name))
        except TargetError as exc:
            loop.fail(exc)
            raise
        self._pika.add_on_connection_blocked_callback(self._on_blocked)
        self._pika.add_on_connection_unblocked_callback(self._on_unblocked)

    def _connect(self, settings: ConnectionSettings, address: BrokerAddress, name: str) -> None:
        """Open the connection to one node, waiting for it."""
        self._address, self._refused = address, None
        connection = self._pika = _LanePikaConnection(
            pika_parameters(settings, address, name),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close,
            custom_ioloop=self.loop.ioloop,
        )
        self.loop.adopt(self)  # not before: without a connection there is nothing to close
        try:
            for _ in self.loop.events(_OPEN_TIMEOUT_S):
                if self._is_open or self._refused is not None:
                    break
        finally:
            if not self._is_open:
                self._say_farewell(connection)
        if self._refused is not None:
            raise self._refused
        if not self._is_open:
            raise TargetUnavailable(f"{address}: no connection in {_OPEN_TIMEOUT_S} s")

    @property
    def frame_max_bytes(self) -> int:
        """The negotiated frame size."""
        return int(self._pika.params.frame_max)

    @property
    def heard_s(self) -> float:
        """When the broker last sent anything but a heartbeat; monotonic."""
        return self._pika.heard_s

    @property
    def buffered_bytes(self) -> int:
        """Output that the socket has not taken yet."""
        return self._pika.buffered_bytes() if self._is_open else 0

    def channel(self) -> Any:
        """Open a channel; when the broker closes it, the loop fails with the broker's words."""
        opened = self.begin_channel()
        self._await(opened, "channel")
        return opened[0]

    def begin_channel(self) -> list[Any]:
        """Begin to open a channel; it is in the list that is returned once the broker answered."""
        self.loop.check()
        opened: list[Any] = []
        try:
            channel = self._pika.channel(on_open_callback=opened.append)
        except PIKA_FAILURES as exc:
            raise closing_error(exc, self._address) from exc
        channel.add_on_close_callback(self._on_channel_close)
        return opened

    def close_channel(self, channel: Any) -> None:
        """Close a channel, waiting for it; what it held unacknowledged goes back to its queue."""
        closed: list[Any] = []
        channel.add_on_close_callback(lambda *reason: closed.append(reason))
        self.send(channel.close)
        self._await(closed, "the closing of a channel")

    def call(self, method: Callable[..., object], *args: Any, **options: Any) -> Any:
        """Make one call that the broker answers, wait, and return the answer's method."""
        answers: list[Any] = []
        try:
            method(*args, **options, callback=answers.append)
        except PIKA_FAILURES as exc:
            self.loop.fail(closing_error(exc, self._address))
        names = [each for each in args if isinstance(each, str)]
        self._await(answers, " ".join([method.__name__, *names]))
        return answers[0].method

    def confirm(self, channel: Any, on_confirm: OnConfirm, on_nack: Callable[[Any], None]) -> None:
        """Turn on confirms on *channel*: those of the broker's refusals are pika's frames."""
        self.call(channel.confirm_delivery, on_nack)
        self._pika.reader.read_confirms(channel.channel_number, on_confirm)

    def consume(
        self,
        channel: Any,
        queue: str,
        on_delivery: OnDelivery,
        on_message: OnMessage | None = None,
        wanted: Set[str | None] = frozenset(),
        choose: ChooseKeep = keep_all,
    ) -> None:
        """Consume *queue* on *channel*; of what is delivered, only tag and ``app-id`` are read.

        Messages whose ``app-id`` is in *wanted* go to *on_message* instead, as far as *choose*
        keeps them.
        """
        self._pika.reader.read_deliveries(
            channel.channel_number, on_delivery, on_message, wanted, choose
        )
        self._consume(channel, queue)

    def consume_messages(
        self, channel: Any, queue: str, on_message: OnMessage, choose: ChooseKeep
    ) -> str:
        """Consume *queue* on *channel*, once more perhaps; return the consumer's tag.

        Messages come undecoded, as far as *choose* keeps them.
        """
        self._pika.reader.read_messages(channel.channel_number, on_message, choose)
        return self._consume(channel, queue)

    def _consume(self, channel: Any, queue: str) -> str:
        def unread(*_delivery: Any) -> None:
            self.loop.fail(
                TargetUnavailable(f"{self._address}: a delivery from {queue} cannot be decoded")
            )

        return str(self.call(channel.basic_consume, queue, unread).consumer_tag)

    def send(self, call: Callable[..., object], *args: object, **options: object) -> None:
        """Make one call that the broker does not answer.

        Raises:
            TargetUnavailable: The connection was already gone; nothing was sent.
        """
        self.loop.check()
        try:
            call(*args, **options)
        except PIKA_FAILURES as exc:
            self.loop.fail(closing_error(exc, self._address))
            self.loop.check()

    def send_frames(self, frames: Sequence[bytes | memoryview]) -> None:
        """Append ready-made frames to the output.

        Raises:
            TargetUnavailable: The connection was already gone; nothing was sent.
        """
        self.loop.check()
        self._pika.send_frames(frames)

    def flush(self, timeout_s: float) -> None:
        """Push the output towards the socket for a while; raises what the guard does."""
        with contextlib.suppress(TargetError):
            for _ in self.loop.events(timeout_s):
                if not self.buffered_bytes:
                    return

    def _await(self, answers: list[Any], doing: str) -> None:
        for _ in self.loop.events(_ANSWER_TIMEOUT_S):
            if answers:
                return
        self.loop.fail(TargetUnavailable(f"{self._address}: no answer to {doing}"))
        self.loop.check()

    # ── ending ──────────────────────────────────────────────────────────────────────────────

    def begin_close(self) -> None:
        """Say farewell; a broker that does not read us under an alarm would never hear it."""
        self._is_closing = True
        if self.blocked_reason is not None:
            self.abandon()
        else:
            self._say_farewell(self._pika)

    @staticmethod
    def _say_farewell(connection: PikaConnection) -> None:
        with contextlib.suppress(Exception):
            if not (connection.is_closed or connection.is_closing):
                connection.close()

    def abandon(self) -> None:
        """Drop the connection at once."""
        self._is_closing = True
        with contextlib.suppress(Exception):
            self._pika.abandon()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left of the connection."""
        return bool(self._pika.is_closed)

    # ── what pika calls ─────────────────────────────────────────────────────────────────────

    def _on_open(self, connection: Any) -> None:
        self._is_open = self._is_open or connection is self._pika  # else it was given up

    def _on_open_error(self, connection: Any, error: BaseException) -> None:
        if connection is self._pika:
            self._refused = opening_error(error, self._address)

    def _on_close(self, connection: Any, error: BaseException) -> None:
        if connection is not self._pika:
            return
        self._is_open = False
        if not self._is_closing:
            self.loop.fail(closing_error(error, self._address))

    def _on_channel_close(self, _channel: Any, error: BaseException) -> None:
        if not (self._is_closing or isinstance(error, ChannelClosedByClient)):
            self.loop.fail(closing_error(error, self._address))

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        reason = frame.method.reason or "no reason given"
        self.blocked_reason = str(reason)

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        self.blocked_reason = None


@dataclass(frozen=True, slots=True)
class ConnectionPair:
    """Connections on one loop; they die together. One connection may do both."""

    publishing: Connection
    consuming: Connection

    @property
    def loop(self) -> EventLoop:
        """What they run on."""
        return self.publishing.loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def abandon(self) -> None:
        """Drop the connections at once; ``close`` follows."""
        for connection in (self.publishing, self.consuming):
            connection.abandon()

    def close(self) -> None:
        """Close the connections, within about two seconds; never raises."""
        self.loop.close()


def open_link(
    settings: ConnectionSettings,
    *,
    publish: str = "",
    consume: str = "",
    publish_to: ConnectionSettings | None = None,
    guard: Callable[[], None] | None = None,
) -> ConnectionPair:
    """Connect once for each purpose that has a name, by which the broker lists the connection.

    Args:
        settings: Where to.
        publish: The name of the connection that publishes.
        consume: The name of the one that consumes; empty: the same does both.
        publish_to: Another broker to publish to.
        guard: See ``EventLoop``.

    Raises:
        AccessRefused: Wrong user, password or virtual host.
        TargetUnavailable: No node answered.
    """
    loop = EventLoop(guard)
    named = ((publish_to or settings, publish), (settings, consume))
    try:
        opened = [Connection(loop, where, name) for where, name in named if name]
    except BaseException:
        loop.close()
        raise
    return ConnectionPair(opened[0], opened[-1])
