"""Headers of a timeout: read them as stored, keep, add and drop them, map them to properties.

Rules and their sources: design section 6; reference ``timeout-manager.md`` sections 4, 10 and
``native-delays.md`` sections 4, 11. Stored headers come from strangers: size and shape are
checked before anything is believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

MESSAGE_ID: Final = "NServiceBus.MessageId"
CORRELATION_ID: Final = "NServiceBus.CorrelationId"
CONTENT_TYPE: Final = "NServiceBus.ContentType"
ENCLOSED_MESSAGE_TYPES: Final = "NServiceBus.EnclosedMessageTypes"
REPLY_TO_ADDRESS: Final = "NServiceBus.ReplyToAddress"
TIME_SENT: Final = "NServiceBus.TimeSent"
DELIVER_AT: Final = "NServiceBus.DeliverAt"
RELATED_TO_TIMEOUT_ID: Final = "NServiceBus.RelatedToTimeoutId"
SAGA_ID: Final = "NServiceBus.SagaId"
IS_SAGA_TIMEOUT: Final = "NServiceBus.IsSagaTimeoutMessage"
VERSION: Final = "NServiceBus.Version"
ORIGINATING_ENDPOINT: Final = "NServiceBus.OriginatingEndpoint"
NON_DURABLE: Final = "NServiceBus.NonDurableMessage"
EXPIRE: Final = "NServiceBus.Timeout.Expire"
ROUTE_EXPIRED_TO: Final = "NServiceBus.Timeout.RouteExpiredTimeoutTo"
TIMEOUT_REPLY_TO: Final = "NServiceBus.Timeout.ReplyToAddress"
CONFIRMATION_ID: Final = "NServiceBus.Transport.RabbitMQ.ConfirmationId"
DELAY_IN_SECONDS: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
OUR_RETRIES: Final = "Migrator.Retries"
"""How often we have retried a message; it never leaves for an endpoint, nor for a store."""
OUR_RENEWAL: Final = "Migrator.Renewed"
"""This message stands for one that came back too often; it never leaves either."""
CALLBACK_QUEUE: Final = "NServiceBus.RabbitMQ.CallbackQueue"
"""Where version 5 waits for callbacks; the transports 4 to 11 reply there before anything else."""
TRACEPARENT: Final = "traceparent"
"""The trace in which a message was sent."""
START_NEW_TRACE: Final = "NServiceBus.OpenTelemetry.StartNewTrace"
"""``True``: receivers that know it link to that trace, which is old, instead of going on with it;
so do natively delayed messages of endpoints that trace. Others neither read nor copy it."""
DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"

BROKER_INSTRUCTIONS: Final = frozenset({"CC", "BCC"})
"""RabbitMQ sends copies to the queues in these, and closes the channel when they hold text."""
_DROPPED: Final = BROKER_INSTRUCTIONS | {
    EXPIRE,
    ROUTE_EXPIRED_TO,
    TIMEOUT_REPLY_TO,
    CONFIRMATION_ID,
    DELAY_IN_SECONDS,
    OUR_RETRIES,
    OUR_RENEWAL,
}
_BROKER_PREFIX: Final = "x-"
"""What a broker or client library left behind; a message that keeps it misleads both."""

_TEXT_OR_NULL: Final = frozenset({str, type(None)})

StoredHeaders = Mapping[str, str | None]


class UnreadableHeaders(ValueError):
    """The stored text is not one flat JSON object of strings."""


def parse_headers(text: str | None) -> StoredHeaders:
    """Return the stored headers in stored order; empty for NULL, blank text and JSON ``null``.

    Raises:
        UnreadableHeaders: Not JSON, not one flat object, a value that is neither text nor null,
            or text that UTF-8 cannot carry (a lone surrogate). The row goes to quarantine.
    """
    if text is None or not text.strip():
        return {}
    try:
        parsed = json.loads(text)
        text.encode()
    except (ValueError, RecursionError) as exc:
        raise UnreadableHeaders(f"not JSON: {type(exc).__name__}") from exc
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise UnreadableHeaders(f"a JSON {type(parsed).__name__}, not an object")
    if not _TEXT_OR_NULL.issuperset(map(type, parsed.values())):
        key = next(key for key, value in parsed.items() if type(value) not in _TEXT_OR_NULL)
        kind = type(parsed[key]).__name__
        raise UnreadableHeaders(f"header {key[:80]!a} holds a JSON {kind}")
    if "\\u" in text:  # only an escape can name half a character
        _check_escapes(parsed)
    return parsed


def _check_escapes(parsed: StoredHeaders) -> None:
    for key, value in parsed.items():
        try:
            key.encode()
            (value or "").encode()
        except UnicodeEncodeError as exc:
            raise UnreadableHeaders(f"header {key[:80]!a} holds text that is not Unicode") from exc


def kept_headers(stored: StoredHeaders) -> dict[str, str | int | None]:
    """Return what a native message keeps, in stored order.

    Dropped are the timeout manager's instructions (a transport of 4.3.2 to 5.0.2 would obey
    ``Timeout.Expire`` again) and what transports and brokers leave behind or would obey. A saga
    timeout of version 3 is recognised by ``Expire`` alone, so it is told in the newer way first.
    A trace of when the timeout was sent is not to be gone on with.
    """
    kept: dict[str, str | int | None] = {
        key: value for key, value in stored.items() if is_kept(key)
    }
    if _is_version_3_saga_timeout(stored):
        kept.setdefault(IS_SAGA_TIMEOUT, "True")
    if TRACEPARENT in stored:
        kept.setdefault(START_NEW_TRACE, "True")
    return kept


def is_kept(key: str) -> bool:
    """Return whether a native message keeps a stored header of such a name, replaced or not."""
    return key not in _DROPPED and not is_brokers(key)


def is_brokers(key: str) -> bool:
    """Return whether brokers and client libraries own headers of such a name."""
    return key.startswith(_BROKER_PREFIX)


def is_version_3(headers: Mapping[str, object]) -> bool:
    """Return whether an endpoint of version 3 wrote *headers*."""
    return str(headers.get(VERSION) or "").startswith("3.")


def _is_version_3_saga_timeout(stored: StoredHeaders) -> bool:
    return is_version_3(stored) and bool(stored.get(SAGA_ID)) and bool(stored.get(EXPIRE))


def queue_part(address: str | None) -> str:
    """Return *address* up to the first ``@``; empty when there is no name in it.

    Version 5 on the oldest transports wrote ``Queue@MACHINE``; RabbitMQ knows no machines.
    """
    return (address or "").partition("@")[0].strip()


def message_id(stored: StoredHeaders) -> str:
    """Return the id that receivers know a message by; empty when the headers name none."""
    return (stored.get(MESSAGE_ID) or "").strip()


def message_type(stored: StoredHeaders) -> str | None:
    """Return the AMQP ``type``: the first enclosed message type, without its assembly."""
    enclosed = stored.get(ENCLOSED_MESSAGE_TYPES)
    return None if enclosed is None else enclosed.partition(",")[0]


def reply_to(stored: StoredHeaders) -> str | None:
    """Return the AMQP ``reply-to``; the timeout manager's own header wins over the usual one."""
    return (
        queue_part(stored.get(TIMEOUT_REPLY_TO)) or queue_part(stored.get(REPLY_TO_ADDRESS)) or None
    )


def is_non_durable(stored: StoredHeaders) -> bool:
    """Return whether a message was sent as non-durable; what is made of it is durable."""
    return (stored.get(NON_DURABLE) or "").strip().lower() == "true"
