"""Whatever foreign bytes are read: values or an error of ours, in time and memory in proportion."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from pika import frame, spec

from migrator.errors import ConfigError
from migrator.nservicebus.conversion import (
    BrokerLimits,
    Quarantine,
    convert,
    due_offset,
)
from migrator.nservicebus.headers import UnreadableHeaders, parse_headers
from migrator.nservicebus.incoming import IncomingMessage, normalised_headers
from migrator.nservicebus.timeouts import NativeMessage
from migrator.nservicebus.wiretime import NotAWireTime, build_wire_time, parse_wire_time
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.frames import FrameReader, read_content_header
from migrator.rabbitmq.properties import Properties, PropertyValues
from tests.support.fuzzing import EXAMPLES, damaged, fuzz, grows_in_proportion, repeated
from tests.unit.nservicebus.samples import DUE, HEADERS, NOW, stored
from tests.unit.rabbitmq.test_frames import delivery
from tests.unit.rabbitmq.test_messages import properties_of

_SHORT: Final = st.text(max_size=12)
_VALUE: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _SHORT | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SHORT, inner, max_size=3),
    max_leaves=6,
)
_PROPERTIES: Final = properties_of(st.dictionaries(_SHORT, _VALUE, max_size=4))


# ── what an operator or another program wrote as text ───────────────────────────────────────


def _read_address(text: str) -> None:
    with suppress(ConfigError):
        for address in parse_addresses(text):
            assert 0 < address.port < 2**16
            assert address.host


def _read_headers(text: str) -> None:
    with suppress(UnreadableHeaders):
        found = parse_headers(text)
        "".join(f"{key}{value}" for key, value in found.items()).encode()
    due_offset(DUE, text)
    row = stored(headers_text=text)
    made = convert(row, rules=BrokerLimits(), now=NOW)
    assert isinstance(made, NativeMessage | Quarantine)
    assert getattr(made, "reason", None) != "unprocessable"  # what no rule foresaw


def _read_wire_time(text: str) -> None:
    with suppress(NotAWireTime):
        assert build_wire_time(parse_wire_time(text)) == text


_XML: Final = (
    '<?xml version="1.0"?><ArrayOfHeaderInfo><HeaderInfo><Key>NServiceBus.MessageId</Key>'
    "<Value>a</Value></HeaderInfo></ArrayOfHeaderInfo>",
    '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><a>&b;&b;&b;</a>',
    '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
)
"""As old versions kept headers elsewhere; nothing here reads XML, or opens what it names."""
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SHORT, inner, max_size=4),
    max_leaves=8,
)
_HEADERS: Final = st.builds(
    lambda own, more: json.dumps({**own, **more}),
    st.fixed_dictionaries({}, optional=dict.fromkeys(HEADERS, _SHORT | st.none())),
    st.dictionaries(st.sampled_from(sorted(HEADERS)) | _SHORT, _JSON, max_size=3),
)


def _as_text(whole: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return damaged(whole.map(lambda text: text.encode(errors="surrogatepass"))).map(
        lambda data: data.decode(errors="surrogateescape")
    )


_PIECES: Final = st.sampled_from(
    [
        *("amqp://", "amqps://", "host=", "port=", "password=", "useTls=true", "virtualhost=", ";"),
        *("=", "'", '"', "''", '""', "@", ":", "/", "[::1]", "%2F", "%", "?", "#", "\n", " ", ","),
        *("a", "5672", "é", "\0", "\u2028", "\ud800"),
    ]
)
_ADDRESS: Final = st.lists(_PIECES | _SHORT, max_size=12).map("".join)
_HEADER_PIECES: Final = st.sampled_from(
    [
        *("{", "}", "[", "]", '"', ":", ",", '{"a":', '"a":"b",', "\\", "\\u", "\\ud800", "9", "-"),
        *("<a>", "<", "&a;", " ", "\0", "é", "1e9", "null,", "\n"),
    ]
)
_WRITTEN: Final = st.datetimes(timezones=st.just(UTC)).map(build_wire_time)
_TIME: Final = st.from_regex(r"[0-9 :TWZ+.-]{28}", fullmatch=True)


# ── what a broker sends ─────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Link:
    """Channels that read confirms, count deliveries, and keep messages."""

    reader: FrameReader = field(default_factory=FrameReader)

    def __post_init__(self) -> None:
        self.reader.read_confirms(1, lambda *_: None)
        self.reader.read_deliveries(2, lambda *_: None)
        self.reader.read_messages(3, lambda found: _read_properties(found.properties.raw))

    def read(self, data: bytes) -> None:
        """Take what is ours; pika gets the frame that comes then."""
        while data:
            read_content_header(data)
            consumed = self.reader.read(data)
            if not consumed:
                with suppress(Exception):  # what pika raises ends a connection, and nothing else
                    consumed = frame.decode_frame(data)[0]
            if not consumed:
                return
            data = data[consumed:]


def _read_frames(data: bytes) -> None:
    _Link().read(data)


def _read_properties(data: bytes) -> None:
    properties = Properties(data)
    found, _ = properties.values, (properties.app_id, properties.header("k"))
    if found.problem is not None:
        assert found == PropertyValues(problem=found.problem)
    normalised_headers(
        IncomingMessage(
            message_id=found.message_id,
            correlation_id=found.correlation_id,
            type=found.type,
            reply_to=found.reply_to,
            content_type=found.content_type,
            delivery_mode=found.delivery_mode,
            raw_headers=found.headers,
            body=b"",
            raw_properties=data,
        )
    )


_METHODS: Final = st.sampled_from(
    [
        spec.Basic.Ack(1, True),
        spec.Basic.Nack(2),
        spec.Basic.Deliver("c", 1, False, "e", "k"),
        spec.Basic.Return(312, "NO_ROUTE", "e", "k"),
        spec.Channel.Close(404, "gone", 0, 0),
        spec.Connection.Blocked("memory"),
    ]
)
_FRAMES: Final = st.lists(
    st.builds(
        lambda channel, method: frame.Method(channel, method).marshal(), st.integers(0, 4), _METHODS
    )
    | st.builds(
        delivery, st.integers(2, 4), st.just(5), _PROPERTIES, st.binary(max_size=9), st.just(4)
    )
    | st.just(frame.Heartbeat().marshal()),
    max_size=5,
).map(b"".join)
_RAW: Final = _PROPERTIES.map(lambda each: b"".join(spec.BasicProperties(**each).encode()))
_FRAME_PIECES: Final = st.sampled_from(
    [
        frame.Heartbeat().marshal(),
        frame.Method(1, spec.Basic.Ack(1)).marshal(),
        frame.Method(1, spec.Basic.Nack(1)).marshal(),
        *(delivery(channel, 1, {"headers": {"k": "v"}}, b"b" * 8, 1) for channel in (2, 3, 4)),
    ]
) | st.binary(min_size=1, max_size=8)


def _headers_of(fields: bytes) -> bytes:
    return b"\x20\x00" + struct.pack(">I", len(fields)) + fields


def _read_fields(fields: bytes) -> None:
    _read_properties(_headers_of(fields))


_FIELD_PIECES: Final = st.sampled_from(
    [
        *(
            b"\x01kV",
            b"\0V",
            b"\x01kt\x01",
            b"\x01kF\0\0\0\0",
            b"\x01kA\0\0\0\x01V",
            b"\x01kS\0\0\0\0",
        ),
        *(b"\x01kD\xff\0\0\0\1", b"\x01kd\x7f\xef\xff\xff\xff\xff\xff\xff", b"\x01kT" + bytes(8)),
        *(b"V", b"F\0\0\0\0", b"A\xff\xff\xff\xff", b"\xff", b"D\xff\x7f\xff\xff\xff"),
    ]
) | st.binary(min_size=1, max_size=6)


@dataclass(frozen=True, slots=True)
class Target:
    """A reader, and what it is tried with."""

    read: Callable[[Any], object]
    examples: st.SearchStrategy[Any]
    pieces: st.SearchStrategy[Any] | None = None
    """What long texts repeat; None: it reads nothing long."""


TARGETS: Final = {
    "addresses": Target(_read_address, _ADDRESS | _as_text(_ADDRESS), _PIECES),
    "frames": Target(_read_frames, damaged(_FRAMES), _FRAME_PIECES),
    "header tables": Target(_read_fields, damaged(_RAW.map(lambda raw: raw[6:])), _FIELD_PIECES),
    "properties": Target(_read_properties, damaged(_RAW) | st.binary(max_size=99)),
    "stored headers": Target(
        _read_headers,
        _as_text(_HEADERS | st.sampled_from(_XML) | _JSON.map(json.dumps)) | _SHORT,
        _HEADER_PIECES,
    ),
    "wire time": Target(_read_wire_time, _TIME | st.text(max_size=40) | _as_text(_WRITTEN), _SHORT),
}


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused(name: str, examples: int) -> None:
    """Nothing but values or a refusal comes of what strangers, or a broken disk, wrote."""
    fuzz(TARGETS[name].examples, TARGETS[name].read, examples)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(
    "name", [name for name, each in TARGETS.items() if each.pieces is not None]
)
def test_time_and_memory_grow_with_the_size(name: str, examples: int) -> None:
    """Up to 64 KiB of any repetition; more of a header's table no frame of a broker holds."""
    target = TARGETS[name]
    assert target.pieces is not None
    parts = repeated(target.pieces)
    fuzz(parts, lambda each: grows_in_proportion(target.read, each), examples // 5)
