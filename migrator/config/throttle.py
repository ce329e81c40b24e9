"""What can be set about when a running daemon claims nothing, and when it ends by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, field_validator, model_validator

from migrator.config.cron import parse_cron_window
from migrator.config.quantities import SOME_TIME, UTC_NAME, Duration, ZoneName
from migrator.config.section import Section, none_when_empty
from migrator.config.windows import Opening, parse_window

_WORDS_OF_RANGE: Final = 2
"""``Sat-Sun 00:00-24:00``"""


_Limit = Annotated[Annotated[Duration, SOME_TIME] | None, BeforeValidator(none_when_empty)]


def _opening(text: str, zone: tzinfo) -> Opening:
    """Return a window: from one time of day to another, or a cron expression and a duration."""
    if len(text.split()) > _WORDS_OF_RANGE:
        return parse_cron_window(text, zone)
    return parse_window(text)


class Throttle(Section):
    """When hand-over waits, with the reason shown; each empty or 0 is off."""

    every: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(seconds=2), description="how often each signal is looked at"
    )
    stale_after: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(seconds=30),
        description="a signal that could not be read for longer holds hand-over as well",
    )
    max_level_depth: int = Field(
        default=0, ge=0, description="messages in all delay levels together; 0: any"
    )
    max_destination_depth: int = Field(
        default=0, ge=0, description="messages in the queue of a destination; 0: any"
    )
    max_database_latency: _Limit = Field(
        default=None,
        description="time until the database lets us at an endpoint's table; empty: any",
    )
    max_replica_lag: _Limit = Field(
        default=None, description="how far a replica of the database may be behind; empty: any"
    )
    windows: tuple[str, ...] = Field(
        default=(),
        description="when rows may be moved: 22:00-06:00, Sat-Sun 00:00-24:00, or from the times "
        "of a cron expression for so long: 0 22 * * mon-fri 8h; none: always",
    )
    time_zone: ZoneName = Field(default=UTC_NAME, description="time zone of the windows")
    touch_file: Annotated[Path | None, BeforeValidator(none_when_empty)] = Field(
        default=None, description="while this file exists, nothing is claimed; empty: none"
    )
    veto_url: Annotated[str | None, BeforeValidator(none_when_empty)] = Field(
        default=None,
        description="address that is asked first; anything but 2xx says no; empty: none",
    )
    panic_level_depth: int = Field(
        default=0, ge=0, description="above it the daemon drains and ends with code 3; 0: never"
    )
    panic_destination_depth: int = Field(
        default=0, ge=0, description="above it the daemon drains and ends with code 3; 0: never"
    )
    panic_database_latency: _Limit = Field(
        default=None, description="above it the daemon drains and ends with code 3; empty: never"
    )
    panic_replica_lag: _Limit = Field(
        default=None, description="above it the daemon drains and ends with code 3; empty: never"
    )

    @property
    def open_windows(self) -> Sequence[Opening]:
        """The windows, parsed."""
        return [_opening(text, self.zone) for text in self.windows]

    @property
    def zone(self) -> tzinfo:
        """The time zone of the windows; UTC is known on machines that know no other."""
        return UTC if self.time_zone == UTC_NAME else ZoneInfo(self.time_zone)

    @field_validator("windows")
    @classmethod
    def _are_windows(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            _opening(text, UTC)
        return value

    @field_validator("touch_file")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path, so that everybody means the same file")
        return value

    @field_validator("veto_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("must be an http:// or https:// address")
            if parts.username or parts.password:
                raise ValueError("must carry no user and no password; it is shown to everybody")
        return value

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        if self.stale_after < 2 * self.every:
            raise ValueError("stale_after must be at least twice as long as every")
        return self
