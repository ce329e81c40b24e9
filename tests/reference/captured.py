"""What real endpoints and their timeout managers wrote, as values.

Captured times are past; ``moved`` gives a timeout another due time, and all that names it.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import pika

from migrator.nservicebus.headers import (
    CONFIRMATION_ID,
    EXPIRE,
    MESSAGE_ID,
    RELATED_TO_TIMEOUT_ID,
    TIME_SENT,
    TRACEPARENT,
    VERSION,
)
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time
from migrator.transfer.rules import DEATHS
from tests.e2e.rows import Row

REAL: Final = Path(__file__).parents[1] / "fixtures" / "real"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message as the broker delivered it."""

    exchange: str
    routing_key: str
    properties: Mapping[str, Any]
    headers: Mapping[str, Any]
    body: bytes

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Self:
        """Return a captured message."""
        return cls(
            exchange=found["exchange"],
            routing_key=found["routing_key"],
            properties=found["properties"],
            headers=dict(map(_typed, *zip(*found["headers"].items(), strict=True))),
            body=base64.b64decode(found["body_b64"]),
        )

    @property
    def logical_id(self) -> str:
        """What message, row and sent message have in common."""
        return str(self.headers[MESSAGE_ID])

    @property
    def amqp(self) -> pika.BasicProperties:
        """Its properties, to be published."""
        return pika.BasicProperties(headers=dict(self.headers), **self.properties)

    @property
    def facts(self) -> dict[str, Any]:
        """All that can be compared: the name of each part, and its value."""
        named = {name.replace("_", "-"): value for name, value in self.properties.items()}
        marks = {"x-death, x-first-death-…" for name in self.headers if name.startswith("x-")}
        headers = {k: v for k, v in self.headers.items() if not k.startswith("x-")}
        parts = {"exchange": self.exchange, "routing key": self.routing_key, "body": self.body}
        return {**parts, **named, **headers, **dict.fromkeys(marks, True)}


@dataclass(frozen=True, kw_only=True)
class Timeout:
    """One timeout on its way through a real timeout manager."""

    on_timeouts: Message
    row: Row
    sent: Message | None
    """None: it was not captured."""

    @property
    def logical_id(self) -> str:
        return self.on_timeouts.logical_id

    @property
    def version(self) -> str:
        """The major version of the endpoint: ``V6``, ``V7``."""
        return f"V{self.on_timeouts.headers[VERSION].partition('.')[0]}"

    def moved(self, due_at: datetime) -> Timeout:
        """Return the same timeout, sent as long before its due time *due_at* as it was."""
        shift = due_at - self.row.due_at
        headers = dict(self.on_timeouts.headers)
        text = self.row.headers or ""
        for name in (EXPIRE, TIME_SENT):
            old = headers[name]
            headers[name] = build_wire_time(parse_wire_time(old) + shift)
            text = text.replace(f'"{name}": "{old}"', f'"{name}": "{headers[name]}"')
        return replace(
            self,
            on_timeouts=replace(self.on_timeouts, headers=headers),
            row=replace(self.row, due_at=due_at, headers=text),
        )


@cache
def timeouts() -> Sequence[Timeout]:
    """Return all that were captured, of versions 6 and 7, and one made of these."""
    series = [*_series("v6/v6"), *_series("v7/v7"), *_express()]
    return [*series, _traced(series[-3])]


def _traced(timeout: Timeout) -> Timeout:
    """Return a timeout like another, of an endpoint with a library that traces.

    Timeout managers pass on headers that they do not know.
    """
    new_id = str(uuid.UUID(int=7))
    new = {MESSAGE_ID: new_id, TRACEPARENT: f"00-{7:032x}-{7:016x}-01"}

    def with_trace(message: Message) -> Message:
        properties = {**message.properties, "message_id": new_id}
        return replace(message, headers=new | {**message.headers} | new, properties=properties)

    assert timeout.sent is not None
    stored = new | json.loads(timeout.row.headers or "") | new
    row = replace(timeout.row, id=new_id, headers=json.dumps(stored, indent=2, ensure_ascii=False))
    sent = with_trace(timeout.sent)
    sent = replace(sent, headers={**sent.headers, RELATED_TO_TIMEOUT_ID: new_id})
    return Timeout(on_timeouts=with_trace(timeout.on_timeouts), row=row, sent=sent)


@cache
def native() -> Sequence[Message]:
    """Return what versions 7 and 10 delayed natively, at the exchanges of levels and of delivery.

    A message that passed several levels is there several times, each time as it was there.
    """
    return [Message.read(each) for name in ("v7/v7", "v10/v10") for each in _read(f"{name}-native")]


@cache
def entering() -> Sequence[Message]:
    """Return those of ``native`` that just came from their endpoints."""
    return [each for each in native() if DEATHS not in each.headers]


def clear_and_control() -> Sequence[Message]:
    """Return two timeouts of a saga, the message that clears them, and a poller's message."""
    return [Message.read(each) for each in _read("v7/v7-clear-and-control")]


def received_by_version_10() -> Sequence[tuple[Row, Mapping[str, Any], Mapping[str, Any]]]:
    """Return rows of version 7 that migrator handed over, and what a receiver of version 10 saw.

    That is the headers, after its transport took its own away, and the properties.
    """
    found = _read("v10/v10-received-v7-rows")
    return [(_row(e["row"]), e["received"]["headers"], e["received"]["native"]) for e in found]


def definitions_by_installers() -> Mapping[str, Any]:
    """Return the delays v2 as the installers of version 10 made them; see its management API."""
    found: Mapping[str, Any] = _read("v10/definitions-by-installers")
    return found


def _series(prefix: str) -> Sequence[Timeout]:
    rows = {_logical_id(row): row for row in map(_row, _read(f"{prefix}-rows-by-real-{_TM}"))}
    sent = {m.logical_id: m for m in map(Message.read, _read(f"{prefix}-sent-by-real-{_TM}"))}
    messages = [Message.read(each) for each in _read(f"{prefix}-on-Timeouts-real-messages")]
    assert rows.keys() == sent.keys() == {each.logical_id for each in messages}
    return [
        Timeout(on_timeouts=m, row=rows[m.logical_id], sent=sent[m.logical_id]) for m in messages
    ]


def _express() -> Sequence[Timeout]:
    """Return two non-durable commands, alike but for ids, times and what was captured.

    Of one the row was captured; that of the other is made of its message in the same form.
    """
    found = _read("v7/v7-express-message-row-and-dispatch")
    first, second = (Message.read(each) for each in found["on_timeouts"])
    (row,) = map(_row, found["rows"])
    (sent,) = map(Message.read, found["sent_by_real"])
    stored = {k: v for k, v in first.headers.items() if k != CONFIRMATION_ID}
    assert list(stored) == list(json.loads(row.headers or ""))
    other = replace(
        row,
        id=sent.headers[RELATED_TO_TIMEOUT_ID],
        due_at=parse_wire_time(stored[EXPIRE]),
        headers=json.dumps(stored, indent=2, ensure_ascii=False),
        body=first.body,
    )
    return [
        Timeout(on_timeouts=first, row=other, sent=sent),
        Timeout(on_timeouts=second, row=row, sent=None),
    ]


_TM: Final = "timeout-manager"


def _typed(name: str, value: Any) -> tuple[str, Any]:
    """Return a header with the times in it, for which JSON has no type."""
    if name == DEATHS:
        value = [{**each, "time": datetime.fromisoformat(each["time"])} for each in value]
    return name, value


def _read(name: str) -> Any:
    return json.loads((REAL / f"{name}.json").read_text())


def _row(found: Mapping[str, Any]) -> Row:
    return Row(
        id=found["id"],
        destination=found["destination"],
        due_at=datetime.fromisoformat(found["time"].ljust(26, "0")).replace(tzinfo=UTC),
        body=base64.b64decode(found["state_b64"]),
        headers=found["headers_text"],
        saga_id=uuid.UUID(found["saga_id"]),
        persistence_version=found["persistence_version"],
    )


def _logical_id(row: Row) -> str:
    return str(json.loads(row.headers or "")[MESSAGE_ID])
