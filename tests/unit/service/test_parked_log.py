"""What the log says of parked destinations, and how often."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from migrator.ledger.report import HeldDestination
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.parked_log import ParkedLog

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def parked(destination: str, reason: Reason) -> HeldDestination:
    """Return a destination that is parked since now."""
    return HeldDestination(
        endpoint=EndpointName("Sales"),
        source="Sales_TimeoutData",
        destination=destination,
        reason=str(reason),
        detail="why",
        tries=1,
        since=NOW,
        next_try_at=NOW,
    )


def test_parked_destinations_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """All in one line, those that only an operator can free first, with what to do."""
    caplog.set_level(logging.INFO)
    log = ParkedLog()
    gone = [parked(f"Gone{n}", Reason.DESTINATION_UNKNOWN) for n in range(20)]
    log.report([], now_s=0)
    log.report(gone, now_s=1)
    log.report([*gone, parked("Secret", Reason.NO_PERMISSION)], now_s=60)
    log.report([*gone, parked("Secret", Reason.NO_PERMISSION)], now_s=61)
    log.report(gone, now_s=119)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    said = vars(caplog.records[1])
    assert said["destinations"] == 21
    assert said["reasons"] == {"destination-unknown": 20, "no-permission": 1}
    assert len(said["parked"]) == 10
    assert said["parked"][0]["destination"] == "Secret"
    assert "migrator db grants --broker" in said["parked"][0]["remedy"]
