"""What can be set about programs that are run when something happens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, field_validator

from migrator.config.quantities import SOME_TIME, Duration, at_most
from migrator.config.section import Section, none_when_empty
from migrator.service.hook_events import HookEvent

_EVENTS: Final = tuple(str(event) for event in HookEvent)


Program = Annotated[Path | None, BeforeValidator(none_when_empty)]


class Hooks(Section):
    """Programs of yours that are run when something happens; nothing waits for them."""

    start: Program = Field(default=None, description="run when the work has begun; empty: none")
    throttle: Program = Field(
        default=None, description="run when a reason to claim nothing comes or goes"
    )
    quarantine: Program = Field(
        default=None, description="run when rows went into quarantine, once for several"
    )
    drained: Program = Field(
        default=None, description="run when everything that can be moved now has been"
    )
    rollback: Program = Field(default=None, description="run when rollback or recall put rows back")
    failure: Program = Field(
        default=None, description="run when the process ends with an exit code other than 0 or 5"
    )
    timeout: Annotated[Duration, SOME_TIME, at_most(timedelta(minutes=1))] = Field(
        default=timedelta(seconds=30),
        description="a program that runs longer is killed, with all it started",
    )

    @property
    def programs(self) -> Mapping[HookEvent, Path]:
        """The program of each event that has one."""
        given = {event: getattr(self, str(event)) for event in HookEvent}
        return {event: path for event, path in given.items() if path is not None}

    @field_validator(*_EVENTS)
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path to a program, without arguments")
        return value
