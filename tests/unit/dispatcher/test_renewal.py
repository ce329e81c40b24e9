"""Tests of ``migrator.nservicebus.recoverability``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.nservicebus import headers as h
from migrator.nservicebus.incoming import normalised_headers
from migrator.nservicebus.recoverability import (
    OFTEN,
    is_renewed,
    is_worn,
    renewed_copy,
    retries_so_far,
)
from tests.unit.nservicebus.samples import HEADERS, delivered, incoming

FRAME_MAX = 131_072


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, False), (0, False), (OFTEN - 1, False), (OFTEN, True), ("99", False)],
)
def test_what_came_back_often_is_worn(count: object, expected: bool) -> None:
    """Only a quorum queue counts, and it does so with a number."""
    message = incoming(headers={**HEADERS, "x-delivery-count": count})
    assert is_worn(message, frame_max_bytes=FRAME_MAX) is expected


def test_what_cannot_be_copied_is_not_worn() -> None:
    """What could not be read, or leaves no room in its frame, stays what it is."""
    message = incoming(headers={**HEADERS, "x-delivery-count": OFTEN})
    assert not is_worn(replace(message, problem="bad table"), frame_max_bytes=FRAME_MAX)
    assert not is_worn(message, frame_max_bytes=4096)


def test_the_copy_asks_for_the_same_and_begins_to_count_anew() -> None:
    """Its headers are the message's, but for the broker's count and our mark."""
    message = incoming(headers={**HEADERS, "x-delivery-count": OFTEN, h.OUR_RETRIES: "3"})
    envelope = renewed_copy(message)
    assert "x-delivery-count" not in envelope.headers
    copy = delivered(envelope)
    assert normalised_headers(copy) == normalised_headers(message)
    assert copy.body == message.body
    assert retries_so_far(copy, limit=10) == 3
    assert is_renewed(copy)
    assert not is_renewed(message)
