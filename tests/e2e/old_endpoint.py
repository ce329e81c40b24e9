"""An endpoint of version 5, 6 or 7 that still has a timeout manager, as the broker sees it.

Messages are built from headers that real endpoints wrote (``tests/fixtures``) and published with
plain pika, so that a mistake in migrator's own conversion cannot hide behind the same mistake
here. Source: reference ``timeout-manager.md`` sections 2 to 5 and 9.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pika

from migrator.nservicebus.wiretime import build_wire_time
from tests.e2e.rig import Rig

Core = Literal[5, 6, 7]
Changes = Mapping[str, str | None]
EXPIRE = "NServiceBus.Timeout.Expire"
ROUTE_TO = "NServiceBus.Timeout.RouteExpiredTimeoutTo"
CONFIRMATION_ID = "NServiceBus.Transport.RabbitMQ.ConfirmationId"
_FIXTURE = Path(__file__).parents[1] / "fixtures" / "captured-headers.json"
_NOT_ON_RABBITMQ = ("CorrId", "NServiceBus.RelatedToTimeoutId", "NServiceBus.DeliverAt")
"""Of another transport, of the dispatch that came before the capture, and of native delays."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OldMessage:
    """One message as an old endpoint publishes it."""

    queue: str
    """Where it is sent to."""
    properties: pika.BasicProperties
    body: bytes
    due_at: datetime | None = None
    """None: it is no delayed message."""

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})

    @property
    def key(self) -> str:
        return logical_key(self.properties)


def logical_key(properties: pika.BasicProperties) -> str:
    """Return what a receiver knows a message by, and which delayed retry of it this is."""
    headers = properties.headers or {}
    message_id = headers.get("NServiceBus.MessageId") or properties.message_id
    return f"{message_id}/{headers.get('NServiceBus.Retries', '')}"


@cache
def captured(core: Core, scenario: str) -> dict[str, str]:
    """Return the headers that an endpoint of that version wrote, without those of its day."""
    (found,) = (
        each["headers"]
        for each in json.loads(_FIXTURE.read_text())
        if (each["core"], each["scenario"]) == (str(core), scenario)
    )
    return {name: value for name, value in found.items() if name not in _NOT_ON_RABBITMQ}


class OldEndpoint:
    """Declares what an old endpoint declares, builds what it sends, and sends it."""

    def __init__(
        self,
        rig: Rig,
        name: str = "Sales",
        *,
        core: Core = 6,
        is_direct: bool = False,
        machine: str | None = None,
    ) -> None:
        """Be endpoint *name*; *machine*: the transport writes addresses as ``Queue@MACHINE``."""
        self._rig = rig
        self.name = name
        self.core = core
        self._is_direct = is_direct
        self._machine = machine

    # ── topology ────────────────────────────────────────────────────────────────────────────

    @property
    def timeouts(self) -> str:
        return f"{self.name}.Timeouts"

    @property
    def dispatcher(self) -> str:
        return f"{self.name}.TimeoutsDispatcher"

    def declare(self, *others: str) -> None:
        """Declare the endpoint's queues, the error queue, and those of *others* it sends to."""
        queues = (self.name, self.timeouts, self.dispatcher, "error", *others)
        self._rig.create_receivers(*queues, direct=self._is_direct)

    def address_of(self, queue: str) -> tuple[str, str]:
        """Return exchange and routing key by which *queue* is sent to."""
        return ("", queue) if self._is_direct else (queue, "")

    # ── what it sends ───────────────────────────────────────────────────────────────────────

    def deferred(
        self,
        due_in: float,
        *,
        to: str | None = None,
        body: bytes = b"<a/>",
        changes: Changes | None = None,
    ) -> OldMessage:
        """Return a deferred message, due in so many seconds; a header of None is left out."""
        found = self._usual("Defer", str(uuid.uuid4()))
        return self._delayed(found, due_in, to=to, body=body, changes=changes)

    def saga_timeout(self, due_in: float, *, saga_id: str) -> OldMessage:
        """Return a timeout that a saga has requested."""
        found = self._usual("SagaTimeout", str(uuid.uuid4()))
        found |= {"NServiceBus.SagaId": saga_id, "NServiceBus.OriginatingSagaId": saga_id}
        return self._delayed(found, due_in, to=None, body=b"<t/>")

    def delayed_retry(self, due_in: float, *, retry: int, message_id: str) -> OldMessage:
        """Return a failed message that its endpoint retries later; all retries share the id."""
        found = self._usual("ErrorError" if self.core == 5 else "Send", message_id)
        found["NServiceBus.Retries"] = str(retry)
        found["NServiceBus.Retries.Timestamp"] = build_wire_time(datetime.now(UTC))
        return self._delayed(found, due_in, to=None, body=b"<r/>")

    def clear_timeouts(self, saga_id: str) -> OldMessage:
        """Return what tells the timeout manager that a saga is complete."""
        headers = {
            "NServiceBus.SagaId": saga_id,
            "NServiceBus.ClearTimeouts": "True",
            "NServiceBus.Version": captured(self.core, "Send")["NServiceBus.Version"],
            "NServiceBus.TimeSent": build_wire_time(datetime.now(UTC)),
        }
        return self._control_message(self.timeouts, headers)

    def control(self, timeout_id: str) -> OldMessage:
        """Return what a timeout manager's poller tells its dispatcher: this row is due."""
        headers = {"Timeout.Id": timeout_id}
        if self.core == 5:
            headers["NServiceBus.TimeSent"] = build_wire_time(datetime.now(UTC))
        return self._control_message(self.dispatcher, headers)

    # ── sending ─────────────────────────────────────────────────────────────────────────────

    def send(self, *messages: OldMessage) -> None:
        """Publish *messages* in their order, each confirmed by the broker."""
        self.publish(messages)

    def publish(self, messages: Iterable[OldMessage]) -> None:
        """Publish messages as they are made, each confirmed by the broker."""
        with self._rig.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number, each in enumerate(messages, 1):
                headers = each.properties.headers
                if self.core >= 6 and headers is not None:
                    headers[CONFIRMATION_ID] = str(number)
                exchange, key = self.address_of(each.queue)
                channel.basic_publish(exchange, key, each.body, each.properties, mandatory=True)

    # ── how it is made ──────────────────────────────────────────────────────────────────────

    def _usual(self, scenario: str, message_id: str) -> dict[str, str]:
        """Return captured headers as if they had been written now, by this endpoint."""
        found = captured(self.core, scenario) | {
            "NServiceBus.MessageId": message_id,
            "NServiceBus.CorrelationId": message_id,
            "NServiceBus.ConversationId": str(uuid.uuid4()),
            "NServiceBus.OriginatingEndpoint": self.name,
            "NServiceBus.ReplyToAddress": self._written(self.name),
            "NServiceBus.TimeSent": build_wire_time(datetime.now(UTC)),
            "NServiceBus.Version": captured(self.core, "Send")["NServiceBus.Version"],
        }
        if "NServiceBus.FailedQ" in found:
            found["NServiceBus.FailedQ"] = self._written(self.name)
        if self.core == 5:  # its deferrer drops where to reply to
            del found["NServiceBus.ReplyToAddress"]
        return found

    def _control_message(self, queue: str, headers: dict[str, str]) -> OldMessage:
        message_id = str(uuid.uuid4())
        headers |= {"NServiceBus.ControlMessage": "True", "NServiceBus.MessageIntent": "Send"}
        if self.core == 5:
            headers["NServiceBus.MessageId"] = headers["NServiceBus.CorrelationId"] = message_id
        return self._message(queue, headers, message_id=message_id)

    def _delayed(
        self,
        found: dict[str, str],
        due_in: float,
        *,
        to: str | None,
        body: bytes,
        changes: Changes | None = None,
    ) -> OldMessage:
        due_at = datetime.now(UTC) + timedelta(seconds=due_in)
        found |= {EXPIRE: build_wire_time(due_at), ROUTE_TO: self._written(to or self.name)}
        written = {
            k: value for k, value in (found | dict(changes or {})).items() if value is not None
        }
        message_id = written.get("NServiceBus.MessageId")
        return self._message(
            self.timeouts, written, message_id=message_id, body=body, due_at=due_at
        )

    def _message(
        self,
        queue: str,
        headers: dict[str, str],
        *,
        message_id: str | None,
        body: bytes = b"",
        due_at: datetime | None = None,
    ) -> OldMessage:
        reply_to = headers.get("NServiceBus.ReplyToAddress")
        types = headers.get("NServiceBus.EnclosedMessageTypes")
        properties = pika.BasicProperties(
            message_id=message_id,
            correlation_id=headers.get("NServiceBus.CorrelationId"),
            type=types.split(",")[0] if types else None,
            reply_to=reply_to.split("@")[0] if reply_to else None,
            content_type=headers.get("NServiceBus.ContentType", "application/octet-stream"),
            delivery_mode=2,
            headers=headers,
        )
        return OldMessage(queue=queue, properties=properties, body=body, due_at=due_at)

    def _written(self, queue: str) -> str:
        return f"{queue}@{self._machine}" if self._machine else queue


def keys(messages: Iterable[OldMessage]) -> set[str]:
    """Return the logical keys of *messages*."""
    return {each.key for each in messages}
