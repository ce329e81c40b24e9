"""Confirms and deliveries are read as pika wrote them, however the stream is cut into reads."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from migrator.rabbitmq.frames import FrameReader, Keep, RawMessage, read_content_header
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
        def tell(*told: Any) -> None:
            if isinstance(told[0], RawMessage):
                found = told[0]
                assert found.body_bytes == len(found.body)
                told = (found.tag, found.raw_key, found.properties.raw, found.body)
            self.told.append((channel, *told))

        return tell

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
        pytest.param(b"\x01\0\x03\0\0\0\x04\0\x3c\0\x50\xce", id="cut ack"),
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


@given(st.sampled_from(Keep), st.binary(max_size=60), st.integers(1, 20))
def test_of_a_message_as_much_is_kept_as_was_chosen(keep: Keep, body: bytes, part: int) -> None:
    """Its reader is asked once, before the body comes; what was not chosen is not in memory."""
    told, asked = list[RawMessage](), list[object]()
    reader = FrameReader()

    def choose(properties: bytes, body_bytes: int) -> Keep:
        asked.append((properties, body_bytes))
        return keep

    reader.read_messages(_WHOLE, told.append, choose)
    raw = b"".join(spec.BasicProperties(app_id="a").encode())
    data = delivery(_WHOLE, 3, {"app_id": "a"}, body, part)
    assert reader.read(data) == len(data)
    assert asked == [(raw, len(body))]
    if keep is Keep.COUNT:
        assert not told
        return
    (found,) = told
    assert (found.tag, found.routing_key, found.body_bytes) == (3, "a.b", len(body))
    assert found.is_redelivered
    assert found.properties.raw == (b"" if keep is Keep.NOTHING else raw)
    assert found.kept_body == (body if keep is Keep.ALL else None)
    assert found.body_hash == (sha256(body).hexdigest() if keep is Keep.HASH else "")


def test_what_is_wanted_and_has_no_room_counts_as_if_it_were_not() -> None:
    """So its reader hears of it, and can give it back."""
    stream, whole = Stream(), list[RawMessage]()
    stream.reader.read_deliveries(
        _STAGED,
        lambda *told: stream.told.append(told),
        whole.append,
        {"a"},
        lambda _properties, body_bytes: Keep.ALL if body_bytes < 3 else Keep.COUNT,
    )
    stream.arrive(delivery(_STAGED, 3, {"app_id": "a"}, b"12", 9), 1000)
    stream.arrive(delivery(_STAGED, 4, {"app_id": "a"}, b"123", 9), 1000)
    assert [(found.tag, found.body) for found in whole] == [(3, b"12")]
    assert stream.told == [(4, False, "a")]


def test_a_body_is_read_in_time_proportional_to_its_size() -> None:
    """A body of 64 MiB in the frames of a broker takes a fraction of a second, not twelve."""
    stream, body = Stream(), bytes(64 * 2**20)
    frames = delivery(_WHOLE, 1, {}, body, 131_064)
    began_s, at = time.process_time(), 0
    while at < len(frames):
        at += stream.reader.read(frames[at : at + 2**20])
    assert time.process_time() - began_s < 3
    assert [told[-1] == body for told in stream.told] == [True]


@given(
    given_properties=properties_of(_TABLE),
    body_bytes=st.integers(0, 2**40),
    rest=st.binary(max_size=40),
)
def test_reading_a_content_header_agrees_with_pika(
    given_properties: dict[str, Any], body_bytes: int, rest: bytes
) -> None:
    """Whatever properties a message has, frame size, channel, body size and app-id are right."""
    header = frame.Header(9, body_bytes, spec.BasicProperties(**given_properties))
    data = header.marshal()
    found = read_content_header(data + rest)
    assert found is not None
    assert found[:3] == (len(data), 9, body_bytes)
    assert found[3].app_id == found[3].values.app_id == given_properties.get("app_id")
    assert found[3].raw == b"".join(spec.BasicProperties(**given_properties).encode())


@pytest.mark.parametrize("cut", [0, 1, 6, 7, 20, -1])
def test_a_frame_that_is_not_whole_is_left_to_pika(cut: int) -> None:
    """Nothing is read from a frame whose end has not come yet."""
    data = frame.Header(1, 5, spec.BasicProperties(app_id="a", headers={"k": "v"})).marshal()
    assert read_content_header(data[:cut]) is None


def test_other_and_broken_frames_are_left_to_pika() -> None:
    """Bodies, wrong end marks and headers without properties are not ours to judge."""
    data = frame.Header(1, 5, spec.BasicProperties(app_id="a" * 20)).marshal()
    assert read_content_header(frame.Body(1, b"xyz").marshal()) is None
    assert read_content_header(data[:-1] + b"\x00") is None
    too_small = b"\x02\x00\x01\x00\x00\x00\x05" + b"\x00" * 5 + b"\xce" + data
    assert read_content_header(too_small) is None
