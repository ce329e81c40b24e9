"""What can be set about a RavenDB server and the timeouts in it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from migrator.config.quantities import SOME_TIME, Duration
from migrator.config.section import Section


class RavenVersion(StrEnum):
    """What form of requests the server takes; ``auto``: it is asked."""

    AUTO = "auto"
    CLASSIC = "3.5"
    MODERN = "4"
    """This one and all later ones."""


def _none_when_empty(value: object) -> object:
    return None if value == "" else value


def _some(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("must name at least one")
    return names


_Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class RavenDb(Section):
    """RavenDB; only read when store.kind is ravendb."""

    database: _Name | None = Field(
        default=None, description="the database, on the server that store.url names"
    )
    version: RavenVersion = Field(
        default=RavenVersion.AUTO,
        description="3.5; 4 for that and later ones; auto: the server is asked",
    )
    collections: Annotated[tuple[_Name, ...], AfterValidator(_some)] = Field(
        default=("TimeoutDatas", "TimeoutData"), description="where timeouts are"
    )
    prefixes: tuple[_Name, ...] = Field(
        default=(),
        description="what ids of timeouts begin with; none: each collection's name and a slash",
    )
    unowned: Annotated[_Name | None, BeforeValidator(_none_when_empty)] = Field(
        default=None,
        description="the endpoint that timeouts without an owner belong to; empty: none is claimed",
    )
    ca_file: Path | None = Field(
        default=None, description="certificates to trust, instead of the system's"
    )
    cert_file: Path | None = Field(default=None, description="client certificate (PEM)")
    key_file: Path | None = Field(default=None, description="key of the client certificate (PEM)")
    request_timeout: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(seconds=30), description="longest wait for a part of an answer"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("must have both cert_file and key_file, or neither")
        return self
