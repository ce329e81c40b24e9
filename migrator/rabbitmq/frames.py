"""Frames that come by the thousand, read without pika: confirms, and deliveries.

pika makes four objects of each and looks each up in a table of callbacks, which took a quarter of
the time of a staged attempt. Of a delivery that is only counted, tag and ``app-id`` are read here,
and its body is skipped; of one that is looked at, as much is kept as its reader asks for, once its
properties and the size of its body are known: foreign bodies have up to 512 MiB.
What a frame is not expected to be, or is not whole yet, is left to pika: it judges and it waits.
Source: AMQP 0-9-1, sections 2.3.5 and 4.2.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from pika.exceptions import InvalidFrameError

from migrator.rabbitmq.properties import Properties, read_app_id

OnConfirm = Callable[[int, bool], None]
"""Called with the delivery tag of a ``basic.ack``, and whether it stands for all before it."""
OnDelivery = Callable[[int, bool, str | None], None]
"""Called, once all of a message is there, with its delivery tag, whether it was delivered before,
and its ``app-id``; None: it has none, or its properties cannot be read."""


class Keep(Enum):
    """How much of a message is kept while it is read."""

    ALL = "all"
    HASH = "hash"
    """Its properties, and the SHA-256 of its body."""
    HEAD = "head"
    """Its properties."""
    NOTHING = "nothing"
    """Its tag, its routing key, and the size of its body."""
    COUNT = "count"
    """As if it were not wanted: it goes to ``OnDelivery``, where there is one."""


@dataclass(slots=True, eq=False)  # frozen, it would take three times as long to make
class RawMessage:
    """A message that was delivered, as far as it was kept; nothing in it can be trusted."""

    tag: int
    """Names it on its channel, and nowhere else."""
    is_redelivered: bool
    raw_key: bytes
    properties: Properties = field(repr=False)
    """Empty: they were not kept."""
    body_bytes: int
    """The size of its body, whether that was kept or not."""
    kept_body: bytes | None = field(default=None, repr=False)
    """None: it was not kept."""
    body_hash: str = ""
    """SHA-256 of its body in hex digits, where that was asked for."""

    @property
    def body(self) -> bytes:
        """Its body.

        Raises:
            ValueError: It was not kept; nothing may take an empty one for it.
        """
        if self.kept_body is None:
            raise ValueError(f"message {self.tag}: its body was not kept")
        return self.kept_body

    @property
    def routing_key(self) -> str:
        """As text, with escapes where it is not UTF-8."""
        return self.raw_key.decode(errors="backslashreplace")

    @property
    def problem(self) -> str | None:
        """Why routing key or properties could not be read; None: both were."""
        try:
            self.raw_key.decode()
        except UnicodeDecodeError:
            return "the routing key is not UTF-8"
        return self.properties.values.problem


OnMessage = Callable[[RawMessage], None]
"""Called once all of a message is there."""
ChooseKeep = Callable[[bytes, int], Keep]
"""Called with flags and properties, and the size of the body that follows."""

_FRAME: Final = struct.Struct(">BHI")  # type, channel, size of the payload
_TAG: Final = struct.Struct(">QB")  # of basic.deliver and basic.ack alike: tag, one bit
_BODY_BYTES: Final = struct.Struct(">Q")
_METHOD, _HEADER, _BODY = 1, 2, 3
_ACK: Final = b"\x00\x3c\x00\x50"
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_ACK_BYTES: Final = len(_ACK) + _TAG.size
_OVERHEAD_BYTES: Final = 8
_END: Final = 0xCE
_LARGEST_HEADER_BYTES: Final = 16 * 2**20
"""Of a frame with properties. RabbitMQ never splits one, and sends more than was negotiated: where
``x-death`` makes headers longer (measured, 3.10), or the publisher had larger frames than we."""
_LARGEST_BODY_BYTES: Final = 512 * 2**20
"""RabbitMQ's own limit; the default is lower."""
_PROTOCOL: Final = b"AMQP"
"""How a peer begins that speaks another version."""
_FIXED_HEADER_BYTES: Final = 12
"""Of the payload, before the flags: class, weight, size of the body."""


def keep_all(_properties: bytes, _body_bytes: int) -> Keep:
    """Choose to keep a message whole, whatever its size."""
    return Keep.ALL


def missing_bytes(data: bytes, frame_max_bytes: int) -> int:
    """Return how many bytes the frame at the start of *data* lacks; as far as can be known by now.

    Raises:
        InvalidFrameError: It is too large.
    """
    if data.startswith(_PROTOCOL):
        return _OVERHEAD_BYTES - len(data)
    if len(data) < _FRAME.size:
        return _FRAME.size - len(data)
    kind, _, payload_bytes = _FRAME.unpack_from(data)
    frame_bytes: int = payload_bytes + _OVERHEAD_BYTES
    largest_bytes = _LARGEST_HEADER_BYTES if kind == _HEADER else frame_max_bytes
    if frame_bytes > largest_bytes:
        raise InvalidFrameError(f"the peer sent a frame of {frame_bytes} bytes > {largest_bytes}")
    return frame_bytes - len(data)


def check_body(body_bytes: int) -> None:
    """Refuse what no broker can hold.

    Raises:
        InvalidFrameError: The body that is announced is too large.
    """
    if body_bytes > _LARGEST_BODY_BYTES:
        raise InvalidFrameError(
            f"the peer announced a body of {body_bytes} bytes > {_LARGEST_BODY_BYTES}"
        )


@dataclass(slots=True, eq=False)
class _Channel:
    """What is expected next on a channel whose deliveries we read."""

    on_delivery: OnDelivery | None = None
    """None: every message is read whole."""
    on_message: OnMessage | None = None
    choose: ChooseKeep = keep_all
    wanted: Set[str | None] = frozenset()
    """Application ids of messages that are looked at beside those that are counted."""
    keep: Keep = Keep.COUNT
    """How much of the message that is being read."""
    has_method: bool = False
    """A ``basic.deliver`` was read, the content header was not."""
    tag: int = 0
    is_redelivered: bool = False
    app_id: str | None = None
    routing_key: bytes = b""
    properties: bytes = b""
    body_bytes: int = 0
    body_left: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)
    """Of the body; joined once, when it is whole."""
    hash: Any = None


class FrameReader:
    """Reads confirms and deliveries on the channels that are named to it."""

    def __init__(self) -> None:
        self.frame_max_bytes = 2**32
        """Larger frames are left to pika, unless they hold properties."""
        self._confirming: dict[int, OnConfirm] = {}
        self._consuming: dict[int, _Channel] = {}

    def read_confirms(self, channel: int, on_confirm: OnConfirm) -> None:
        """Read ``basic.ack`` on a channel from now on; a ``basic.nack`` is pika's, as before."""
        self._confirming[channel] = on_confirm

    def read_deliveries(
        self,
        channel: int,
        on_delivery: OnDelivery,
        on_message: OnMessage | None = None,
        wanted: Set[str | None] = frozenset(),
        choose: ChooseKeep = keep_all,
    ) -> None:
        """Read deliveries on a channel from now on; nothing has been consumed there yet.

        *on_message* gets those whose ``app-id`` is in *wanted* when they come, unless *choose*
        returns ``COUNT``.
        """
        self._consuming[channel] = _Channel(
            on_delivery=on_delivery, on_message=on_message, wanted=wanted, choose=choose
        )

    def read_messages(
        self, channel: int, on_message: OnMessage, choose: ChooseKeep = keep_all
    ) -> None:
        """Read deliveries on a channel, which may be consuming already; *choose* what is kept.

        The same *on_message* for as long as the channel is open.
        """
        known = self._consuming.get(channel)
        if known is None or known.on_message != on_message:
            self._consuming[channel] = _Channel(on_message=on_message, choose=choose)

    def read(self, data: bytes) -> int:
        """Take the frames at the start of *data* that are ours; return how many bytes they are.

        What follows is the beginning of a frame, or one of pika's. It raises what callbacks do.
        """
        at, size = 0, len(data)
        while at + _OVERHEAD_BYTES <= size:
            kind, number, payload_bytes = _FRAME.unpack_from(data, at)
            end = at + _OVERHEAD_BYTES + payload_bytes
            if end > size or data[end - 1] != _END:
                break
            if end - at > self.frame_max_bytes and kind != _HEADER:
                break
            begin = at + _FRAME.size
            consuming = self._consuming.get(number)
            if consuming is not None:
                if not _take(consuming, kind, data, begin, end - 1):
                    break
            elif (
                kind == _METHOD
                and number in self._confirming
                and data[begin : begin + 4] == _ACK
                and payload_bytes == _ACK_BYTES
            ):
                tag, is_multiple = _TAG.unpack_from(data, begin + 4)
                self._confirming[number](tag, bool(is_multiple & 1))
            else:
                break
            at = end
        return at


def _take(channel: _Channel, kind: int, data: bytes, begin: int, end: int) -> bool:
    """Read a frame with the payload from *begin* to *end*; return False when it is not expected."""
    is_idle = not (channel.has_method or channel.body_left)
    if kind == _METHOD and is_idle and data[begin : begin + 4] == _DELIVER:
        return _take_delivery(channel, data, begin, end)
    if kind == _HEADER and channel.has_method and end - begin >= _FIXED_HEADER_BYTES:
        _begin_body(channel, data, begin, end)
    elif kind == _BODY and 0 < end - begin <= channel.body_left:
        channel.body_left -= end - begin
        if channel.keep is Keep.ALL:
            # a view spares a copy, but keeps all of *data* in memory
            is_most = 2 * (end - begin) > len(data)
            channel.pieces.append(memoryview(data)[begin:end] if is_most else data[begin:end])
        elif channel.keep is Keep.HASH:
            channel.hash.update(memoryview(data)[begin:end])
    else:
        return False
    if not channel.body_left:
        _end_message(channel)
    return True


def _begin_body(channel: _Channel, data: bytes, begin: int, end: int) -> None:
    """Read a content header, and choose how much of the message is kept."""
    (channel.body_bytes,) = _BODY_BYTES.unpack_from(data, begin + 4)
    check_body(channel.body_bytes)
    channel.body_left = channel.body_bytes
    channel.has_method = False
    properties = begin + _FIXED_HEADER_BYTES
    if channel.on_delivery is not None:
        channel.keep = Keep.COUNT
        channel.app_id = read_app_id(data, properties, end)
        if channel.app_id not in channel.wanted:
            return
    channel.properties = bytes(data[properties:end])
    channel.keep = channel.choose(channel.properties, channel.body_bytes)
    if channel.keep is Keep.NOTHING:
        channel.properties = b""
    elif channel.keep is Keep.HASH:
        channel.hash = hashlib.sha256()


def _end_message(channel: _Channel) -> None:
    """Report a message that is there as a whole; the channel keeps nothing of it."""
    if channel.keep is not Keep.COUNT and channel.on_message is not None:
        found = RawMessage(
            channel.tag,
            channel.is_redelivered,
            channel.routing_key,
            Properties(channel.properties),
            channel.body_bytes,
            b"".join(channel.pieces) if channel.keep is Keep.ALL else None,
            channel.hash.hexdigest() if channel.keep is Keep.HASH else "",
        )
        channel.pieces.clear()
        channel.properties, channel.hash = b"", None
        channel.on_message(found)
    elif channel.on_delivery is not None:
        channel.on_delivery(channel.tag, channel.is_redelivered, channel.app_id)


def _take_delivery(channel: _Channel, data: bytes, begin: int, end: int) -> bool:
    """Read a ``basic.deliver``; return False when it is not whole."""
    after_consumer = begin + 5 + data[begin + 4]
    exchange = after_consumer + _TAG.size
    if exchange > end:
        return False
    if channel.on_delivery is None or channel.wanted:
        if exchange >= end:
            return False
        key = exchange + 1 + data[exchange]
        if key >= end or key + 1 + data[key] != end:
            return False
        channel.routing_key = bytes(data[key + 1 : end])
    channel.tag, flags = _TAG.unpack_from(data, after_consumer)
    channel.is_redelivered = bool(flags & 1)
    channel.has_method = True
    return True


def read_content_header(data: bytes) -> tuple[int, int, int, Properties] | None:
    """Return the content header frame at the start of *data*.

    Returns:
        Bytes of the frame, channel, bytes of the body, and properties that are not read; None when
        the frame is of another kind, or not whole yet: then it is pika's to judge.
    """
    if len(data) < _FRAME.size:
        return None
    kind, channel, size = _FRAME.unpack_from(data)
    end = _FRAME.size + size
    if kind != _HEADER or len(data) <= end or data[end] != _END or size < _FIXED_HEADER_BYTES:
        return None
    (body_bytes,) = _BODY_BYTES.unpack_from(data, _FRAME.size + 4)
    properties = Properties(bytes(data[_FRAME.size + _FIXED_HEADER_BYTES : end]))
    return end + 1, channel, body_bytes, properties
