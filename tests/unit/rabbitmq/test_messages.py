"""What is written here is what pika would write, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from migrator.nservicebus.incoming import RawMessage
from migrator.rabbitmq.messages import (
    encode_bare_properties,
    encode_properties,
    encode_publish,
    encode_raw,
    encode_table,
    read_content_header,
    short_string,
    whole_content_header,
)
from tests.unit.rabbitmq.material import message

_SHORT = st.text(max_size=60)
_TABLE = st.dictionaries(
    _SHORT,
    st.one_of(st.none(), st.text(max_size=300), st.integers(-(2**31), 2**31 - 1)),
    max_size=8,
)


def _by_pika(properties: Any, exchange: str, key: str, body: bytes, frame_max: int) -> bytes:
    method = spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=True)
    part = (frame_max or len(body) + 9) - 8
    frames = [frame.Method(7, method), frame.Header(7, len(body), properties)]
    frames += [frame.Body(7, body[at : at + part]) for at in range(0, len(body), part)]
    return b"".join(each.marshal() for each in frames)


@given(
    headers=_TABLE,
    type_=st.none() | _SHORT,
    correlation_id=st.none() | _SHORT,
    reply_to=st.none() | _SHORT,
    body=st.binary(max_size=50_000),
    frame_max=st.sampled_from([0, 4096, 8192, 131_072]),
)
def test_a_publish_is_what_pika_would_send(
    headers: dict[str, str | int | None],
    type_: str | None,
    correlation_id: str | None,
    reply_to: str | None,
    body: bytes,
    frame_max: int,
) -> None:
    """For any message the encoded frames equal pika's."""
    native = message(
        headers=headers,
        type=type_,
        correlation_id=correlation_id,
        reply_to=reply_to,
        body=body,
    )
    expected = spec.BasicProperties(
        content_type=native.content_type,
        headers=headers,
        delivery_mode=2,
        correlation_id=correlation_id,
        reply_to=reply_to,
        message_id=native.message_id,
        type=type_,
        app_id="mark",
    )
    properties = encode_properties(native, app_id="mark", headers=headers)
    if frame_max and len(properties) + 12 > frame_max - 8:
        with pytest.raises(ValueError, match="do not fit"):
            encode_publish(7, "ex", "a.b", properties, body, frame_max_bytes=frame_max)
        return
    pieces = encode_publish(7, "ex", "a.b", properties, body, frame_max_bytes=frame_max)
    assert b"".join(pieces) == _by_pika(expected, "ex", "a.b", body, frame_max)


_TEXTS = ("message_id", "correlation_id", "type", "reply_to", "content_type")


def _envelope(**changes: Any) -> RawMessage:
    fields: dict[str, Any] = dict.fromkeys(_TEXTS)
    return RawMessage(**(fields | {"headers": {}, "body": b""} | changes))


@given(
    headers=_TABLE,
    texts=st.fixed_dictionaries({name: st.none() | _SHORT for name in _TEXTS}),
)
def test_an_envelope_is_what_pika_would_send(
    headers: dict[str, str | int | None], texts: dict[str, str | None]
) -> None:
    """Whatever properties an envelope has or lacks, they equal pika's, and there is no mark."""
    envelope = _envelope(headers=headers, **texts)
    expected = spec.BasicProperties(headers=headers, delivery_mode=2, **texts)
    assert encode_raw(envelope) == b"".join(expected.encode())


def test_raw_properties_are_sent_as_they_are() -> None:
    """A copy of what could not be read changes no byte, whatever else the envelope says."""
    raw = b"\xff\xff garbage"
    envelope = _envelope(message_id="not this", headers={"nor": "this"}, raw_properties=raw)
    assert encode_raw(envelope) == raw


def test_a_message_without_a_mark_has_no_app_id() -> None:
    """What is sent when it is due looks like any sender's message."""
    properties = spec.BasicProperties()
    properties.decode(encode_properties(message(), app_id=None, headers={}))
    assert properties.message_id == message().message_id
    assert properties.app_id is None


@given(headers=_TABLE)
def test_a_receipt_is_what_pika_would_send(headers: dict[str, str | int | None]) -> None:
    """A message with nothing but headers and a mark equals pika's."""
    expected = spec.BasicProperties(headers=headers, delivery_mode=2, app_id="m")
    properties = encode_bare_properties(app_id="m", headers=headers)
    pieces = encode_publish(7, "ex", "k", properties, b"", frame_max_bytes=131_072)
    assert b"".join(pieces) == _by_pika(expected, "ex", "k", b"", 131_072)


@given(table=_TABLE)
def test_a_table_reads_back(table: dict[str, str | int | None]) -> None:
    """A header table decodes to what was encoded."""
    properties = spec.BasicProperties()
    properties.decode(b"\x20\x00" + encode_table(table))
    assert properties.headers == table


def test_a_short_string_is_measured_in_bytes() -> None:
    """255 bytes fit a short string, whatever number of characters they are; 256 do not."""
    assert short_string("é" * 127 + "x")[0] == 255
    with pytest.raises(ValueError, match="256 bytes"):
        short_string("é" * 128)


_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": _SHORT,
        "content_encoding": _SHORT,
        "headers": _TABLE,
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 255),
        "correlation_id": _SHORT,
        "reply_to": _SHORT,
        "expiration": _SHORT,
        "message_id": _SHORT,
        "timestamp": st.integers(0, 2**60),
        "type": _SHORT,
        "user_id": _SHORT,
        "app_id": _SHORT,
        "cluster_id": _SHORT,
    },
)


@given(given_properties=_PROPERTIES, body_bytes=st.integers(0, 2**40), rest=st.binary(max_size=40))
def test_reading_a_content_header_agrees_with_pika(
    given_properties: dict[str, Any], body_bytes: int, rest: bytes
) -> None:
    """Whatever properties a message has, frame size, channel, body size and app-id are right."""
    header = frame.Header(9, body_bytes, spec.BasicProperties(**given_properties))
    data = header.marshal()
    expected = (len(data), 9, body_bytes, given_properties.get("app_id"))
    assert read_content_header(data + rest) == expected
    properties = b"".join(spec.BasicProperties(**given_properties).encode())
    assert whole_content_header(data + rest) == (*expected[:3], properties)


@pytest.mark.parametrize("cut", [0, 1, 6, 7, 20, -1])
def test_a_frame_that_is_not_whole_is_left_to_pika(cut: int) -> None:
    """Nothing is read from a frame whose end has not come yet."""
    data = frame.Header(1, 5, spec.BasicProperties(app_id="a", headers={"k": "v"})).marshal()
    assert read_content_header(data[:cut]) is None


def test_other_and_broken_frames_are_left_to_pika() -> None:
    """Bodies, wrong end marks and properties that run over the end are not ours to judge."""
    data = frame.Header(1, 5, spec.BasicProperties(app_id="a" * 20)).marshal()
    assert read_content_header(frame.Body(1, b"xyz").marshal()) is None
    assert read_content_header(data[:-1] + b"\x00") is None
    too_small = b"\x02\x00\x01\x00\x00\x00\x05" + b"\x00" * 5 + b"\xce" + data
    assert whole_content_header(too_small) is None
