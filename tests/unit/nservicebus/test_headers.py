"""Tests of ``migrator.nservicebus.headers``."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.nservicebus import headers as h
from tests.unit.nservicebus.samples import HEADERS, captured

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


# ── parsing ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", [None, "", "  \r\n", "null", "{}", " {} "])
def test_nothing_stored_means_no_headers(text: str | None) -> None:
    """NULL, blank text, JSON null and the empty object all mean: no headers."""
    assert h.parse_headers(text) == {}


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
@pytest.mark.parametrize("indent", [None, 2])
def test_captured_headers_are_read_back(entry: dict[str, dict[str, str]], indent: int) -> None:
    """What real endpoints wrote is read back, in order, compact or indented."""
    text = json.dumps(entry["headers"], indent=indent)
    assert list(h.parse_headers(text).items()) == list(entry["headers"].items())


def test_escaped_slashes_are_read() -> None:
    """The .NET serializer of the NHibernate persistence escapes slashes."""
    assert h.parse_headers(r'{"NServiceBus.ContentType":"application\/json"}') == {
        h.CONTENT_TYPE: "application/json"
    }


def test_the_last_of_a_repeated_key_counts() -> None:
    """The persistence's own reader does the same."""
    assert h.parse_headers('{"a": "1", "b": null, "a": "2"}') == {"a": "2", "b": None}


@given(stored=st.dictionaries(UNICODE, st.none() | UNICODE))
def test_headers_round_trip(stored: dict[str, str | None]) -> None:
    """Any Unicode text survives being written as JSON and read."""
    assert h.parse_headers(json.dumps(stored)) == stored
    assert h.parse_headers(json.dumps(stored, ensure_ascii=False)) == stored


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "'a'",
        '{"a": "1"} trailing',
        "[]",
        '"text"',
        "5",
        "true",
        '{"a": 1}',
        '{"a": true}',
        '{"a": {"b": "c"}}',
        '{"a": ["b"]}',
        '{"a": NaN}',
        "\x00",
        '[{"Key": "a", "Value": "b"}]',
        '{"a": ' + "9" * 5000 + "}",
        "<headers/>",
    ],
)
def test_other_shapes_are_unreadable(text: str) -> None:
    """Anything but one flat object of strings and nulls goes to quarantine."""
    with pytest.raises(h.UnreadableHeaders):
        h.parse_headers(text)


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"\\udfff": "a"}', '{"a": "\ud800"}'])
def test_lone_surrogates_are_unreadable(text: str) -> None:
    """UTF-8 cannot carry half a character, so no message can."""
    with pytest.raises(h.UnreadableHeaders):
        h.parse_headers(text)


def test_a_pair_of_surrogates_is_one_character() -> None:
    """JSON writes characters beyond 16 bits as two escapes."""
    assert h.parse_headers('{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_unreadable(opening: str) -> None:
    """A hostile depth ends in quarantine, not in a crash."""
    with pytest.raises(h.UnreadableHeaders):
        h.parse_headers(opening * 200_000)


@given(text=st.text())
def test_any_text_is_read_or_unreadable(text: str) -> None:
    """There is no third outcome."""
    try:
        parsed = h.parse_headers(text)
    except h.UnreadableHeaders as exc:
        assert len(str(exc)) < 300  # noqa: PT017 - the only claim about this outcome
        return
    assert all(value is None or isinstance(value, str) for value in parsed.values())


# ── what is kept ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_nothing_that_must_stay_is_dropped(entry: dict[str, dict[str, str]]) -> None:
    """Only the timeout manager's instructions go; every other captured header stays as it was."""
    kept = h.kept_headers(entry["headers"])
    gone = entry["headers"].keys() - kept.keys()
    assert gone <= {h.EXPIRE, h.ROUTE_EXPIRED_TO}
    assert all(kept[key] == entry["headers"][key] for key in kept)
    assert list(kept) == [key for key in entry["headers"] if key in kept]


@pytest.mark.parametrize(
    "key",
    [
        "NServiceBus.Timeout.Expire",
        "NServiceBus.Timeout.RouteExpiredTimeoutTo",
        "NServiceBus.Timeout.ReplyToAddress",
        "NServiceBus.Transport.RabbitMQ.ConfirmationId",
        "NServiceBus.Transport.RabbitMQ.DelayInSeconds",
        "Migrator.Retries",
        "CC",
        "BCC",
        "x-death",
        "x-first-death-queue",
        "x-dotnet-pub-seq-no",
    ],
)
def test_leftovers_are_dropped(key: str) -> None:
    """What a timeout manager, a transport or a broker left behind would mislead the next one."""
    assert h.kept_headers({key: "value", "NServiceBus.Version": "7.0.0"}) == {
        "NServiceBus.Version": "7.0.0"
    }


@pytest.mark.parametrize("key", ["X-Tenant", "xray", "cc", "NServiceBus.Timeout.Other", ""])
def test_similar_names_are_kept(key: str) -> None:
    """Names are compared exactly, and users may have their own."""
    assert h.kept_headers({key: None}) == {key: None}


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


# ── headers as properties ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("Sales", "Sales"),
        ("Sales@MACHINE", "Sales"),
        ("Sales@MACHINE@OTHER", "Sales"),
        (" Sales @MACHINE", "Sales"),
        ("With Space", "With Space"),
        ("@MACHINE", ""),
        ("  ", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_machine_names_are_cut_off(address: str | None, expected: str) -> None:
    """RabbitMQ knows no machines; the queue's name ends at the first @."""
    assert h.queue_part(address) == expected


@pytest.mark.parametrize(
    ("enclosed", "expected"),
    [
        (HEADERS["NServiceBus.EnclosedMessageTypes"], "Acme.Billing.InvoiceOverdue"),
        ("Acme.Type", "Acme.Type"),
        ("Acme.A, Asm;Acme.B, Asm", "Acme.A"),
        (None, None),
    ],
)
def test_the_type_is_the_first_without_its_assembly(
    enclosed: str | None, expected: str | None
) -> None:
    """As every transport since version 4 writes it."""
    assert h.message_type({h.ENCLOSED_MESSAGE_TYPES: enclosed}) == expected


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({h.REPLY_TO_ADDRESS: "Billing"}, "Billing"),
        ({h.REPLY_TO_ADDRESS: "Billing@APP01"}, "Billing"),
        ({h.REPLY_TO_ADDRESS: "Billing", h.TIMEOUT_REPLY_TO: "Client@APP02"}, "Client"),
        ({h.REPLY_TO_ADDRESS: "Billing", h.TIMEOUT_REPLY_TO: ""}, "Billing"),
        ({h.REPLY_TO_ADDRESS: None}, None),
        ({}, None),
    ],
)
def test_the_timeout_managers_own_reply_to_wins(
    stored: dict[str, str | None], expected: str | None
) -> None:
    """Version 5 kept the original address aside and put it back on dispatch."""
    assert h.reply_to(stored) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("False", False), (None, False), ("", False), ("True", True), (" true ", True), ("1", False)],
)
def test_only_an_explicit_true_says_non_durable(value: str | None, expected: bool) -> None:
    """Anything else says that it was sent as any other."""
    assert h.is_non_durable({h.NON_DURABLE: value}) is expected
    assert h.is_non_durable({}) is False


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({h.MESSAGE_ID: " id "}, "id"),
        ({h.MESSAGE_ID: " "}, ""),
        ({h.MESSAGE_ID: None}, ""),
        ({}, ""),
    ],
)
def test_the_message_id_is_never_blank(stored: dict[str, str | None], expected: str) -> None:
    """Blank is as good as missing."""
    assert h.message_id(stored) == expected
