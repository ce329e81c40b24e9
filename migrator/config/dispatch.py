"""What can be set about migrator as a timeout manager."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Final

from pydantic import Field, field_validator

from migrator.config.handover import MAX_BATCH_ROWS
from migrator.config.quantities import SOME_TIME, Duration, at_most
from migrator.config.section import Section

_AT_MOST_A_MINUTE: Final = at_most(timedelta(minutes=1))
_MAX_RETRIES: Final = 10
"""Each delay is a queue of its own."""


class OnCritical(StrEnum):
    """What a dispatcher does once an outage has lasted too long."""

    KEEP_TRYING = "keep-trying"
    EXIT = "exit"


class Dispatch(Section):
    """How migrator works as a timeout manager, for endpoints in mode dispatch or forward."""

    poll_interval: Annotated[Duration, SOME_TIME, _AT_MOST_A_MINUTE] = Field(
        default=timedelta(milliseconds=500), description="how often stored rows are looked for"
    )
    look_ahead: Annotated[Duration, SOME_TIME, _AT_MOST_A_MINUTE] = Field(
        default=timedelta(seconds=1),
        description="rows due within it are fetched, and sent when due",
    )
    batch_size: int = Field(
        default=1000, ge=1, le=MAX_BATCH_ROWS, description="rows fetched at a time"
    )
    prefetch: int = Field(
        default=500, ge=1, le=65_535, description="messages of a queue in hand at a time"
    )
    retry_delays: tuple[Duration, ...] = Field(
        default=(timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=5)),
        description="waits between attempts at a message that fails; empty: none",
    )
    error_queue: str = Field(
        default="error", min_length=1, description="queue for messages that fail for good"
    )
    critical_after: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(minutes=2), description="an outage that lasts longer is critical"
    )
    on_critical: OnCritical = Field(
        default=OnCritical.KEEP_TRYING,
        description="after such an outage: keep trying, or end with exit code 4",
    )
    remember: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(hours=1),
        description="how long a sent timeout is known, should its message be delivered again",
    )

    @field_validator("retry_delays")
    @classmethod
    def _are_waits(cls, value: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
        second = timedelta(seconds=1)
        if len(value) > _MAX_RETRIES:
            raise ValueError(f"must be at most {_MAX_RETRIES} durations")
        if any(delay < second or delay % second for delay in value):
            raise ValueError("must be durations of whole seconds, each at least 1s")
        if any(later <= sooner for sooner, later in pairwise(value)):
            raise ValueError("must be durations in rising order")
        return value
