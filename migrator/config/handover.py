"""What can be set about how timeouts are moved."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, field_validator

from migrator.config.quantities import SOME_TIME, Duration, Size, at_least, longer_than
from migrator.config.section import Section, none_when_empty
from migrator.delays.routing import LONGEST_DELAY
from migrator.ledger.states import Mode

HEARTBEAT: Final = timedelta(seconds=5)
"""AMQP heartbeat of our connections."""
_SHORTEST_LEASE: Final = 3 * HEARTBEAT
"""A broker closes a silent connection after two to three heartbeats; a lane stays ours longer."""
_AFTER_THE_BROKER: Final = at_least(
    timedelta(minutes=7),
    "after a node failure the broker itself tries again after 3 minutes, and after 6 at worst",
)

MAX_BATCH_ROWS: Final = 10_000
"""Three batches must fit a consumer's prefetch, which has 16 bits."""


class NearDue(StrEnum):
    """Who sends rows that are due too soon to be moved."""

    LEAVE = "leave"
    """The endpoint's own timeout manager."""
    DISPATCH = "dispatch"
    """Our dispatcher."""


class HandOver(Section):
    """How timeouts are moved."""

    mode: Mode = Field(default=Mode.STAGED, description="how a batch is handed over")
    batch_size: int = Field(default=1000, ge=1, le=MAX_BATCH_ROWS, description="rows in a batch")
    batch_bytes: Annotated[Size, Field(ge=1)] = Field(
        default=8 * 2**20, description="bodies and headers in a batch"
    )
    lanes: int = Field(default=1, ge=1, le=64, description="batches worked on side by side")
    cutoff: Duration = Field(
        default=timedelta(minutes=1),
        description="rows due sooner are left; 0s: no timeout manager runs any more",
    )
    near_due: NearDue = Field(
        default=NearDue.LEAVE,
        description="who sends the rows left: the timeout manager (leave), or migrator (dispatch)",
    )
    horizon: Annotated[Annotated[Duration, SOME_TIME] | None, BeforeValidator(none_when_empty)] = (
        Field(
            default=None,
            description="rows due later stay in the store; empty: an hour less than the longest "
            "delay, about 8.5 years",
        )
    )
    rate_limit: int = Field(default=0, ge=0, description="messages per second; 0: none")
    window: int = Field(default=2000, ge=1, le=65_535, description="messages without an answer yet")
    window_bytes: Annotated[Size, Field(ge=1)] = Field(
        default=32 * 2**20, description="bytes without an answer yet"
    )
    use_entries: bool = Field(
        default=True, description="publish by our own entry exchanges where allowed"
    )
    sweep_interval: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(seconds=1), description="pause after a look that found nothing"
    )
    lease: Annotated[Duration, longer_than(_SHORTEST_LEASE)] = Field(
        default=timedelta(seconds=20),
        description="how long a lane stays ours without a sign of life",
    )
    receipt_deadline: Annotated[Duration, _AFTER_THE_BROKER] = Field(
        default=timedelta(minutes=10),
        description="wait for a receipt before a batch is doubtful; at least 7 minutes",
    )
    destination_map: dict[str, str] = Field(
        default={}, description="old queue name to new queue name"
    )
    accept_suffix_collisions: bool = Field(
        default=False, description="go on although a message would reach a second queue, too"
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _is_for_hand_over(cls, value: object) -> object:
        if value == Mode.DISPATCH:
            raise ValueError(
                "it is a mode of an endpoint in [[endpoints]]; must be staged or direct"
            )
        if value not in (Mode.STAGED, Mode.DIRECT):
            raise ValueError("must be staged or direct")
        return value

    @field_validator("horizon")
    @classmethod
    def _fits_native_delays(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value > LONGEST_DELAY:
            longest_s = int(LONGEST_DELAY.total_seconds())
            raise ValueError(f"must be at most {longest_s}s, an hour less than the longest delay")
        return value

    @field_validator("destination_map")
    @classmethod
    def _names_queues(cls, value: dict[str, str]) -> dict[str, str]:
        if not all(old.strip() and new.strip() for old, new in value.items()):
            raise ValueError("must map one queue name to another, neither empty")
        return value
