"""What can be set about the work: endpoints, hand-over, dispatch, when both wait, and probes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta, tzinfo
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from migrator.config.values import (
    EMPTY_IS_NONE,
    SAME_FILE,
    UTC_NAME,
    Duration,
    OptionalDuration,
    PositiveDuration,
    Section,
    Size,
    ZoneName,
    at_most,
    checked,
    demand,
    find_zone,
    longer_than,
)
from migrator.delays.routing import LONGEST_DELAY, parse_levels, probe_delay_s
from migrator.ledger.states import Mode
from migrator.text import build_duration
from migrator.throttle.windows import Window, parse_window

HEARTBEAT: Final = timedelta(seconds=5)
"""AMQP heartbeat of migrator's connections."""
_SHORTEST_LEASE: Final = 3 * HEARTBEAT
"""A broker closes a silent connection after two to three heartbeats; a lease must last longer."""
_AFTER_THE_BROKER: Final = demand(
    lambda span: span >= timedelta(minutes=7),
    "must be at least 7m: after a node failure the broker itself tries again after 3 minutes, at "
    "worst after 6",
)

_FITS_THE_DELAYS: Final = demand(
    lambda span: span <= LONGEST_DELAY,
    f"must be at most {LONGEST_DELAY // timedelta(seconds=1)}s, an hour less than the longest "
    "delay",
)
_QUEUES: Final = demand(
    lambda names: all(name.strip() for pair in names.items() for name in pair),
    "must map one queue name to another, and neither may be empty",
)

MAX_BATCH_ROWS: Final = 10_000
"""Three batches must fit a consumer's prefetch, which has 16 bits."""
_AT_MOST_A_MINUTE: Final = at_most(timedelta(minutes=1))
_AT_MOST_10_S: Final = at_most(timedelta(seconds=10))
_NARROWEST: Final = timedelta(minutes=1)
"""Between cutoff and horizon. Polls before the cutoff are up to 10 s apart, and a row that passes
it between two of them stays with the timeout manager.
"""
_LONGEST_POLL_PAUSE: Final = timedelta(seconds=1.5)
"""Less than the two seconds of docs/promise.md, with the time to send rows due at once."""
_MAX_RETRIES: Final = 10
"""Each delay is its own queue."""


class EndpointMode(StrEnum):
    """What migrator does for an endpoint."""

    MIGRATE = "migrate"
    """Move its rows into the native delays."""
    DISPATCH = "dispatch"
    """Be its timeout manager: store, and send when due."""
    FORWARD = "forward"
    """Move its rows, and put its new timeouts into the native delays at once."""


class Endpoint(Section):
    """One sending endpoint: what to do for it, and where its rows and messages are."""

    name: str = Field(min_length=1)
    """the sending endpoint's name"""
    mode: EndpointMode = EndpointMode.MIGRATE
    """what to do for it"""
    queue: str | None = Field(default=None, min_length=1)
    """its input queue, when it is not the name; .Timeouts and .TimeoutsDispatcher are named after
    it"""
    error_queue: str | None = Field(default=None, min_length=1)
    """its error queue, when it is not dispatch.error_queue"""
    table_prefix: str | None = None
    """prefix of its table, when it is not the name"""
    table: str | None = Field(default=None, min_length=1)
    """its table, when nothing else fits"""
    schema_name: str | None = Field(default=None, alias="schema", min_length=1)
    """schema of its table"""

    @property
    def input_queue(self) -> str:
        return self.queue or self.name

    @property
    def has_place(self) -> bool:
        """It names its own table."""
        return any(each is not None for each in (self.table, self.table_prefix, self.schema_name))

    @model_validator(mode="after")
    def _has_one_table(self) -> Self:
        if self.table is not None and self.table_prefix is not None:
            raise ValueError("must have either table or table_prefix, not both")
        return self


class NearDue(StrEnum):
    LEAVE = "leave"
    """Rows due soon are sent by the endpoint's own timeout manager."""
    DISPATCH = "dispatch"
    """Rows due soon are sent by migrator's dispatcher."""


class HandOverPace(StrEnum):
    """What limits the speed of hand-over."""

    LEVELS = "levels"
    """The release rate of the delay levels, so that no other sender's timeouts are late."""
    FULL = "full"
    """Nothing, for a maintenance window."""


class HandOver(Section):
    """How timeouts are moved."""

    mode: Mode = Mode.STAGED
    """how a batch is handed over"""
    batch_size: int = Field(default=1000, ge=1, le=MAX_BATCH_ROWS)
    """rows in a batch"""
    batch_bytes: Annotated[Size, Field(ge=1)] = 8 * 2**20
    """bodies and headers in a batch; a larger row is alone in its batch, and up to six times in
    memory"""
    lanes: int = Field(default=1, ge=1, le=64)
    """batches handed over in parallel"""
    cutoff: Duration = timedelta(minutes=1)
    """rows due sooner stay with the timeout manager; 0s: none runs any more"""
    near_due: NearDue = NearDue.LEAVE
    """who sends rows due before the cutoff: the timeout manager (leave), or migrator (dispatch)"""
    horizon: Annotated[OptionalDuration, _FITS_THE_DELAYS] = None
    """rows due later stay in the store; empty: an hour less than the longest delay, about 8.5
    years"""
    pace: HandOverPace = HandOverPace.LEVELS
    """at most the release rate of the delay levels (levels), or as fast as possible (full)"""
    rate_limit: int = Field(default=0, ge=0)
    """messages per second; 0: none"""
    max_quarantined: int = Field(default=100, ge=0)
    """bad rows of a run (or 1 % of the claimed, if more) that pause an endpoint; 0: no limit"""
    window: int = Field(default=2000, ge=1, le=65_535)
    """messages not yet confirmed"""
    window_bytes: Annotated[Size, Field(ge=1)] = 32 * 2**20
    """bytes not yet confirmed"""
    use_entries: bool = True
    """publish through migrator's own entry exchanges where allowed"""
    sweep_interval: Annotated[PositiveDuration, _AT_MOST_10_S] = timedelta(seconds=1)
    """shortest pause after a poll that found nothing; grows to 1.5 s while there is nothing, with
    a cutoff to 10 s"""
    lease: Annotated[Duration, longer_than(_SHORTEST_LEASE), at_most(timedelta(minutes=10))] = (
        timedelta(seconds=20)
    )
    """how long a lane stays owned without a renewal; what a dead daemon claimed waits as long"""
    receipt_deadline: Annotated[Duration, _AFTER_THE_BROKER] = timedelta(minutes=10)
    """wait for a receipt before a batch is doubtful; at least 7 minutes"""
    destination_map: Annotated[dict[str, str], _QUEUES] = Field(default={})
    """old queue name to new queue name"""
    accept_suffix_collisions: bool = False
    """continue although a message would also reach a second queue"""

    @field_validator("mode", mode="before")
    @classmethod
    def _is_for_hand_over(cls, value: object) -> object:
        if value == Mode.DISPATCH:
            raise ValueError(
                "that is a mode for an endpoint in [[endpoints]]; must be staged or direct"
            )
        if value not in (Mode.STAGED, Mode.DIRECT):
            raise ValueError("must be staged or direct")
        return value

    @model_validator(mode="after")
    def _has_rows_to_move(self) -> Self:
        if not self.cutoff:
            return self  # what is due later than the horizon comes nearer, and is moved at last
        longest = LONGEST_DELAY if self.horizon is None else self.horizon
        if longest - self.cutoff < _NARROWEST:
            given = build_duration(self.horizon) if self.horizon else "not set"
            horizon = given if self.horizon else f"{given}: {build_duration(longest)}"
            raise ValueError(
                f"horizon ({horizon}) must be at least {build_duration(_NARROWEST)} longer than "
                f"cutoff ({build_duration(self.cutoff)}), or no row is moved: rows due before the "
                "cutoff stay with the timeout manager, rows due after the horizon stay in the "
                "store; use a shorter cutoff, or a longer horizon"
            )
        return self

    @model_validator(mode="after")
    def _polls_in_time(self) -> Self:
        if not self.cutoff and self.sweep_interval > _LONGEST_POLL_PAUSE:
            raise ValueError(
                f"sweep_interval ({build_duration(self.sweep_interval)}) must be at most "
                f"{build_duration(_LONGEST_POLL_PAUSE)} with cutoff 0s: a row due at once waits as "
                "long, and no timeout manager sends it; use a shorter sweep_interval"
            )
        return self


class OnCritical(StrEnum):
    """What a dispatcher does after an outage longer than ``critical_after``."""

    KEEP_TRYING = "keep-trying"
    EXIT = "exit"


class Dispatch(Section):
    """How migrator works as a timeout manager, for endpoints in mode dispatch or forward."""

    poll_interval: Annotated[PositiveDuration, _AT_MOST_A_MINUTE] = timedelta(milliseconds=500)
    """how often stored rows are polled; less often, at most 1.5 s apart, while none is due"""
    look_ahead: Annotated[PositiveDuration, _AT_MOST_A_MINUTE] = timedelta(seconds=1)
    """rows due within it are fetched, and sent when due"""
    batch_size: int = Field(default=1000, ge=1, le=MAX_BATCH_ROWS)
    """rows fetched at a time"""
    prefetch: int = Field(default=500, ge=1, le=65_535)
    """unacknowledged messages of a queue at a time"""
    retry_delays: tuple[Duration, ...] = (
        timedelta(seconds=10),
        timedelta(minutes=1),
        timedelta(minutes=5),
    )
    """waits between attempts for a message that fails; empty: none"""
    error_queue: str = Field(default="error", min_length=1)
    """queue for messages that fail for good"""
    critical_after: PositiveDuration = timedelta(minutes=2)
    """an outage that lasts longer is critical"""
    on_critical: OnCritical = OnCritical.KEEP_TRYING
    """after such an outage: keep trying, or end with exit code 4"""
    remember: PositiveDuration = timedelta(hours=1)
    """how long a sent timeout is known, should its message be delivered again"""

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

    @model_validator(mode="after")
    def _sees_rows_in_time(self) -> Self:
        longest = max(self.look_ahead, _LONGEST_POLL_PAUSE)
        if self.poll_interval > longest:
            raise ValueError(
                f"poll_interval ({build_duration(self.poll_interval)}) must be at most "
                f"{build_duration(longest)} with look_ahead {build_duration(self.look_ahead)}: "
                "a row that gets due between two polls is late; use a shorter poll_interval, or a "
                "longer look_ahead"
            )
        return self


def _check_address(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    if parts.username or parts.password:
        raise ValueError("must not contain a user or password; it is shown to all users")


class ThrottleSettings(Section):
    """When hand-over pauses; a limit that is empty or 0 is off."""

    every: PositiveDuration = timedelta(seconds=2)
    """how often each signal is polled"""
    stale_after: PositiveDuration = timedelta(seconds=30)
    """a signal that could not be read for longer pauses hand-over as well"""
    max_level_depth: int = Field(default=0, ge=0)
    """messages in all delay levels together; 0: no limit"""
    max_destination_depth: int = Field(default=0, ge=0)
    """messages in the queue of a destination; 0: no limit"""
    max_database_latency: OptionalDuration = None
    """time until the database gives access to an endpoint's table; empty: no limit"""
    max_replica_lag: OptionalDuration = None
    """how far a replica of the database may be behind; empty: no limit"""
    windows: tuple[Annotated[str, checked(parse_window)], ...] = ()
    """when rows may be moved: 22:00-06:00, Sat-Sun 00:00-24:00; none: always"""
    time_zone: ZoneName = UTC_NAME
    """time zone of the windows"""
    flag_file: Annotated[Path | None, EMPTY_IS_NONE, SAME_FILE] = None
    """while this file exists, claiming is paused; empty: none"""
    http_url: Annotated[str | None, EMPTY_IS_NONE, checked(_check_address)] = None
    """URL that is asked before claiming; any answer but 2xx pauses hand-over; empty: none"""
    critical_level_depth: int = Field(default=0, ge=0)
    """above it the daemon drains and ends with code 3; 0: never"""
    critical_destination_depth: int = Field(default=0, ge=0)
    """above it the daemon drains and ends with code 3; 0: never"""
    critical_database_latency: OptionalDuration = None
    """above it the daemon drains and ends with code 3; empty: never"""
    critical_replica_lag: OptionalDuration = None
    """above it the daemon drains and ends with code 3; empty: never"""

    @property
    def open_windows(self) -> Sequence[Window]:
        return [parse_window(text) for text in self.windows]

    @property
    def zone(self) -> tzinfo:
        return find_zone(self.time_zone)

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        if self.stale_after < 2 * self.every:
            raise ValueError("stale_after must be at least twice as long as every")
        return self

    @model_validator(mode="after")
    def _waits_before_it_ends(self) -> Self:
        for what in ("level_depth", "destination_depth", "database_latency", "replica_lag"):
            most, critical = getattr(self, f"max_{what}"), getattr(self, f"critical_{what}")
            if most and critical and critical <= most:
                raise ValueError(
                    f"critical_{what} ({_shown(critical)}) must be higher than max_{what} "
                    f"({_shown(most)}): the daemon ends before it ever waits"
                )
        return self


def _shown(limit: int | timedelta) -> str:
    return build_duration(limit) if isinstance(limit, timedelta) else str(limit)


class Probe(Section):
    """Messages that a running daemon sends through the delay levels to measure their lateness."""

    every: OptionalDuration = None
    """how often probes are sent; empty: never"""
    levels: Annotated[str, checked(parse_levels)] = "0,1,2,3"
    """through which levels; the probe of level n waits for 2ⁿ seconds"""
    warn_after: PositiveDuration = timedelta(seconds=2)
    """warn of a probe that is later"""
    capacity: bool = True
    """at the first run on a broker, measure the release rate of its levels by short bursts"""

    @property
    def probed_levels(self) -> Sequence[int]:
        return parse_levels(self.levels)

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        longest_s = probe_delay_s(self.probed_levels[-1])
        if self.every is not None and self.every <= timedelta(seconds=longest_s):
            raise ValueError(
                f"every must be longer than {longest_s}s, the time that the longest probe takes"
            )
        return self
