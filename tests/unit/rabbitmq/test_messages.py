"""What is written here is what pika would write, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from migrator.nservicebus.incoming import OutgoingMessage
from migrator.rabbitmq.messages import (
    encode_properties,
    encode_publish,
    encode_raw,
    short_string,
)

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


_TEXTS = ("message_id", "correlation_id", "type", "reply_to", "content_type")


def _raw(**changes: Any) -> OutgoingMessage:
    fields: dict[str, Any] = dict.fromkeys(_TEXTS)
    return OutgoingMessage(**(fields | {"headers": {}, "body": b""} | changes))


@given(
    headers=_TABLE,
    texts=st.fixed_dictionaries({name: st.none() | _SHORT for name in _TEXTS}),
    mark=st.none() | _SHORT,
    body=st.binary(max_size=50_000),
    frame_max=st.sampled_from([0, 4096, 8192, 131_072]),
)
def test_a_publish_is_what_pika_would_send(
    headers: dict[str, str | int | None],
    texts: dict[str, str | None],
    mark: str | None,
    body: bytes,
    frame_max: int,
) -> None:
    """Whatever properties a message has or lacks, the encoded frames equal pika's."""
    expected = spec.BasicProperties(headers=headers, delivery_mode=2, app_id=mark, **texts)
    properties = encode_properties(_raw(**texts, headers=headers), app_id=mark)
    if frame_max and len(properties) + 12 > frame_max - 8:
        with pytest.raises(ValueError, match="do not fit"):
            encode_publish(7, "ex", "a.b", properties, body, frame_max_bytes=frame_max)
        return
    pieces = encode_publish(7, "ex", "a.b", properties, body, frame_max_bytes=frame_max)
    assert b"".join(pieces) == _by_pika(expected, "ex", "a.b", body, frame_max)


def test_raw_properties_are_sent_as_they_are() -> None:
    """A copy of what could not be read changes no byte, whatever else the message says."""
    raw = b"\xff\xff garbage"
    message = _raw(message_id="not this", headers={"nor": "this"}, raw_properties=raw)
    assert encode_raw(message) == raw


def test_a_short_string_is_measured_in_bytes() -> None:
    """255 bytes fit a short string, whatever number of characters they are; 256 do not."""
    assert short_string("é" * 127 + "x")[0] == 255
    with pytest.raises(ValueError, match="256 bytes"):
        short_string("é" * 128)


def properties_of(table: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return any properties of a message, with headers like *table*."""
    numbers = {
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**60),
    }
    texts = (*_TEXTS, "content_encoding", "expiration", "user_id", "app_id", "cluster_id")
    every = {"headers": table, **numbers, **dict.fromkeys(texts, _SHORT)}
    return st.fixed_dictionaries({}, optional=every)
