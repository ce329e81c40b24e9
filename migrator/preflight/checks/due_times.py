"""Are due times read in the zone they were written in? Else rows go out hours early or late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.ledger.work import Clock, StoreEndpoint
from migrator.preflight.findings import Finding, Level
from migrator.stores.due_times import DueTimeReading, DueTimeRules, read_due_times
from migrator.stores.ports import Store

NAME: Final = "due-times"


def check(
    store: Store, endpoints: Sequence[StoreEndpoint], clock: Clock, rules: DueTimeRules
) -> Iterator[Finding]:
    """Compare a sample of each endpoint's due column with the rows' own headers."""
    for endpoint in endpoints:
        reading = read_due_times(store, endpoint, clock, rules)
        yield Finding(
            check=NAME,
            level=_level(reading),
            subject=endpoint.source,
            text=reading.text or _fine(reading, rules),
            remedy=reading.remedy,
        )


def _level(reading: DueTimeReading) -> Level:
    if reading.is_refused:
        return Level.REFUSED
    return Level.WARNING if reading.shifted else Level.OK


def _fine(reading: DueTimeReading, rules: DueTimeRules) -> str:
    if not reading.comparable:
        return f"no row tells of its zone; due times are read as {rules.time_zone}"
    return f"{reading.comparable} sampled rows are due when their headers say"
