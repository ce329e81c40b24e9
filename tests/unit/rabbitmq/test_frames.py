"""Confirms and deliveries are read as pika wrote them, however the stream is cut into reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from migrator.rabbitmq.frames import FrameReader
from tests.unit.rabbitmq.test_messages import properties_of

_STAGED, _RECEIPTS, _PUBLISHING, _PIKAS, _WHOLE = 1, 2, 3, 4, 5
_TABLE = st.dictionaries(st.text(max_size=20), st.none() | st.text(max_size=40), max_size=4)


class Stream:
    """A reader, what it has told, and what it left to pika."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.left = b""
        self.reader = FrameReader()
        for channel in (_STAGED, _RECEIPTS):
            self.reader.read_deliveries(channel, self._teller(channel))
        self.reader.read_messages(_WHOLE, self._teller(_WHOLE))
        self.reader.read_confirms(_PUBLISHING, self._teller(_PUBLISHING))

    def _teller(self, channel: int) -> Any:
        return lambda *told: self.told.append((channel, *told))

    def arrive(self, data: bytes, read_bytes: int) -> list[frame.Frame]:
        """Read *data* as an event loop does; return the frames that were left to pika."""
        found: list[frame.Frame] = []
        for at in range(0, len(data), read_bytes):
            self.left += data[at : at + read_bytes]
            while self.left:
                consumed = self.reader.read(self.left)
                if not consumed:
                    consumed, decoded = frame.decode_frame(self.left)
                    if not decoded:
                        break
                    found.append(decoded)
                self.left = self.left[consumed:]
        return found


def delivery(channel: int, tag: int, properties: dict[str, Any], body: bytes, part: int) -> bytes:
    """Return what a broker sends of a message, its body in frames of *part* bytes."""
    method = spec.Basic.Deliver("ctag", tag, bool(tag % 2), "ex", "a.b")
    frames: list[Any] = [frame.Method(channel, method)]
    frames.append(frame.Header(channel, len(body), spec.BasicProperties(**properties)))
    frames += [frame.Body(channel, body[at : at + part]) for at in range(0, len(body), part)]
    return b"".join(each.marshal() for each in frames)


_ACKS = st.tuples(st.just("ack"), st.integers(0, 2**63), st.booleans())
_DELIVERIES = st.tuples(
    st.sampled_from([_STAGED, _RECEIPTS, _WHOLE]),
    st.integers(1, 2**63),
    properties_of(_TABLE),
    st.binary(max_size=50),
)


@given(
    st.lists(_ACKS | _DELIVERIES | st.just("pika's"), max_size=5),
    st.integers(1, 20),
    st.integers(1, 300),
)
def test_everything_is_told_once_and_in_order(events: list[Any], part: int, read: int) -> None:
    """Of what is counted, tag, redelivery and app-id; of what is looked at, all that was sent.

    pika gets all the rest.
    """
    data, told, for_pika = b"", list[object](), 0
    for event in events:
        if event == "pika's":
            data += frame.Heartbeat().marshal()
            data += frame.Method(_PUBLISHING, spec.Basic.Nack(5)).marshal()
            data += delivery(_PIKAS, 1, {}, b"abc", 3)
            for_pika += 5
        elif event[0] == "ack":
            data += frame.Method(_PUBLISHING, spec.Basic.Ack(*event[1:])).marshal()
            told.append((_PUBLISHING, *event[1:]))
        else:
            channel, tag, properties, body = event
            data += delivery(channel, tag, properties, body, part)
            raw = b"".join(spec.BasicProperties(**properties).encode())
            counted = (bool(tag % 2), properties.get("app_id"))
            told.append((channel, tag, *((b"a.b", raw, body) if channel == _WHOLE else counted)))
    stream = Stream()
    assert len(stream.arrive(data, read)) == for_pika
    assert stream.told == told
    assert stream.left == b""


@given(st.binary(max_size=60))
def test_properties_that_cannot_be_read_cost_the_message_its_app_id(raw: bytes) -> None:
    """Nothing raises, whatever a stranger wrote; the message counts, and whose it is stays open."""
    method = frame.Method(_STAGED, spec.Basic.Deliver("c", 7, False, "", "")).marshal()
    payload = b"\0\x3c\0\0" + bytes(8) + raw
    header = b"\x02\0\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    stream = Stream()
    assert stream.arrive(method + header, 1000) == []
    ((channel, tag, _, app_id),) = stream.told
    assert (channel, tag) == (_STAGED, 7)
    assert app_id is None or (raw[0] << 8 | raw[1]) & 1 << 3


@pytest.mark.parametrize(
    "unexpected",
    [
        frame.Header(_STAGED, 5, spec.BasicProperties()).marshal(),
        frame.Body(_STAGED, b"abc").marshal(),
        frame.Method(_STAGED, spec.Basic.Cancel("c")).marshal(),
        frame.Method(_STAGED, spec.Channel.Close(404, "gone", 0, 0)).marshal(),
        frame.Method(_STAGED, spec.Basic.Ack(1)).marshal(),
        frame.Method(_PIKAS, spec.Basic.Ack(1)).marshal(),
        frame.Heartbeat().marshal(),
        frame.Method(_STAGED, spec.Basic.Deliver("c", 1, False, "", "")).marshal()[:-1] + b"\0",
    ],
)
def test_what_is_not_expected_is_left_to_pika(unexpected: bytes) -> None:
    """It decides whether that ends the connection; nothing was told, and the next one is read."""
    stream = Stream()
    assert stream.reader.read(unexpected) == 0
    assert not stream.told
    assert stream.arrive(delivery(_STAGED, 3, {"app_id": "a"}, b"b", 9), 1000) == []
    assert stream.told == [(_STAGED, 3, True, "a")]


def test_a_body_longer_than_announced_is_left_to_pika() -> None:
    """A message is never over before its body is, nor does it take what is not its own."""
    data = delivery(_STAGED, 3, {"app_id": "a"}, b"12345", 5)
    cut = len(frame.Body(_STAGED, b"12345").marshal())
    stream = Stream()
    assert stream.reader.read(data[:-cut] + frame.Body(_STAGED, b"123456").marshal()) < len(data)
    assert not stream.told
