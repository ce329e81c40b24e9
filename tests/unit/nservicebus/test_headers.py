"""Tests of ``migrator.nservicebus.headers``."""

from __future__ import annotations

import pytest

from migrator.nservicebus import headers as h


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, {}) for text in (None, "", "  \r\n", "null", "{}", " {} ")),
        (r'{"a": "application\/json"}', {"a": "application/json"}),  # as NHibernate's serializer
        ('{"a": "1", "b": null, "a": "2"}', {"a": "2", "b": None}),  # as the vendor's reader
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),  # a pair of surrogates
    ],
)
def test_stored_headers_are_read(text: str | None, expected: dict[str, str | None]) -> None:
    """NULL, blank text, JSON null and the empty object all mean: no headers."""
    assert h.parse_headers(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("{", "'a'", '{"a": "1"} trailing', "[]", '"text"', "5", "true", "\x00", "<headers/>"),
        *(f'{{"a": {value}}}' for value in ("1", "true", '{"b": "c"}', '["b"]', "NaN", "9" * 5000)),
        '[{"Key": "a", "Value": "b"}]',
        *('{"a": "\\ud800"}', '{"\\udfff": "a"}', '{"a": "\ud800"}'),  # halves of characters
        *("[" * 200_000, '{"a":' * 200_000),
    ],
)
def test_other_shapes_are_unreadable(text: str) -> None:
    """Anything but one flat object of strings and nulls goes to quarantine, however hostile."""
    with pytest.raises(h.UnreadableHeaders):
        h.parse_headers(text)


@pytest.mark.parametrize(
    ("key", "is_kept"),
    [
        *((key, True) for key in ("X-Tenant", "xray", "cc", "NServiceBus.Timeout.Other", "")),
        ("NServiceBus.Timeout.Expire", False),
        ("NServiceBus.Timeout.RouteExpiredTimeoutTo", False),
        ("NServiceBus.Timeout.ReplyToAddress", False),
        ("NServiceBus.Transport.RabbitMQ.ConfirmationId", False),
        ("NServiceBus.Transport.RabbitMQ.DelayInSeconds", False),
        ("Migrator.Retries", False),
        *((key, False) for key in ("CC", "BCC", "x-death", "x-dotnet-pub-seq-no")),
    ],
)
def test_leftovers_are_dropped_and_similar_names_kept(key: str, is_kept: bool) -> None:
    """What a timeout manager, a transport or a broker left behind would mislead the next one."""
    kept = h.kept_headers({key: "value", "NServiceBus.Version": "7.0.0"})
    assert kept == ({key: "value"} if is_kept else {}) | {"NServiceBus.Version": "7.0.0"}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({h.VERSION: "3.3.8", h.SAGA_ID: "id", h.EXPIRE: "when"}, "True"),
        ({h.VERSION: "3.3.8", h.SAGA_ID: "id", h.EXPIRE: "when", h.IS_SAGA_TIMEOUT: "no"}, "no"),
        ({h.VERSION: "3.3.8", h.SAGA_ID: "id"}, None),
        ({h.VERSION: "3.3.8", h.EXPIRE: "when"}, None),
        ({h.VERSION: "4.0.0", h.SAGA_ID: "id", h.EXPIRE: "when"}, None),
        ({h.VERSION: "30.0", h.SAGA_ID: "id", h.EXPIRE: "when"}, None),
        ({h.VERSION: None, h.SAGA_ID: "id", h.EXPIRE: "when"}, None),
    ],
)
def test_saga_timeouts_of_version_3_say_what_they_are(
    stored: dict[str, str | None], expected: str | None
) -> None:
    """They were recognised by Expire, which goes, so the newer header is added first."""
    assert h.kept_headers(stored).get(h.IS_SAGA_TIMEOUT) == expected


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({h.TRACEPARENT: "00-1-2-01"}, "True"),
        ({h.TRACEPARENT: "00-1-2-01", h.START_NEW_TRACE: "False"}, "False"),
        ({"tracestate": "a=b"}, None),
    ],
)
def test_nobody_goes_on_with_the_trace_of_an_old_message(
    stored: dict[str, str | None], expected: str | None
) -> None:
    """A native delayed message says so itself; whoever traced in version 7 knew no such header."""
    assert h.kept_headers(stored) == stored | (
        {} if expected is None else {h.START_NEW_TRACE: expected}
    )
