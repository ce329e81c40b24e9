"""What can be set about a running process: its control and status, hooks, traces and log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from migrator.config.values import (
    EMPTY_IS_NONE,
    SAME_FILE,
    SOME_TIME,
    Duration,
    Section,
    absolute,
    at_most,
)

AUTO: Final = "auto"
_SHORTEST_TOKEN_CHARS: Final = 16
"""Shorter ones can be guessed."""
_MOST_SPANS: Final = 10_000
_LONGEST_FLUSH: Final = timedelta(seconds=30)


class Web(Section):
    """How a running daemon is asked and told: a socket file, and HTTP when wanted."""

    socket: Annotated[Path | Literal["auto"] | None, EMPTY_IS_NONE, absolute(SAME_FILE)] = Field(
        default=AUTO,
        description="file of the control socket, one for each daemon on a machine; auto: in the "
        "runtime folder of the service or the user, if there is one; empty: none",
    )
    listen: Annotated[str | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="address and port for HTTP, such as 127.0.0.1:9464; empty: none",
    )
    token: SecretStr | None = Field(
        default=None,
        description="over HTTP, one can only look without it, and only on this machine",
    )
    token_file: Path | None = Field(
        default=None, description="file that holds the token; a bare name is a systemd credential"
    )
    allow_remote: bool = Field(
        default=False, description="true: web.listen may be an address that others can reach"
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Return host and port of ``listen``; None: no HTTP."""
        return None if self.listen is None else _address(self.listen)

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            _address(value)
        return value

    @field_validator("token")
    @classmethod
    def _is_long(cls, value: SecretStr | None) -> SecretStr | None:
        text = "" if value is None else value.get_secret_value()
        if value is not None and (
            len(text) < _SHORTEST_TOKEN_CHARS or not text.isascii() or not text.isprintable()
        ):
            raise ValueError(
                f"must have at least {_SHORTEST_TOKEN_CHARS} characters, all of them ASCII"
            )
        return value

    @model_validator(mode="after")
    def _is_reached_by_others_on_purpose(self) -> Self:
        if self.address is None or is_loopback(self.address[0]):
            return self
        if not self.allow_remote:
            raise ValueError(
                "listen must be an address of this machine alone, such as 127.0.0.1, unless "
                "allow_remote is true"
            )
        if self.token is None:
            raise ValueError("listen must not be reached by others without a token")
        return self


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach, or be, *host*; of other names nobody knows."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _address(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise _no_address() from exc
    if not host or port is None or parts.netloc != text or "@" in text:
        raise _no_address()
    return host, port


def _no_address() -> ValueError:
    return ValueError("must be an address and a port, such as 127.0.0.1:9464 or [::1]:9464")


Program = Annotated[Path | None, EMPTY_IS_NONE, absolute(" to a program, without arguments")]


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
    def programs(self) -> Mapping[str, Path]:
        """The program of each event that has one."""
        return {name: value for name, value in self if isinstance(value, Path)}


class Telemetry(Section):
    """Whether spans of what is done go to an OpenTelemetry collector; wants migrator[otel]."""

    traces: bool = Field(
        default=False,
        description="true: spans of what is handed over and sent go to a collector",
    )
    endpoint: Annotated[str | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="address of the collector's OTLP over HTTP, such as http://127.0.0.1:4318; "
        "empty: OTEL_EXPORTER_OTLP_* of the environment",
    )
    spans_per_batch: int = Field(
        default=100,
        ge=0,
        le=_MOST_SPANS,
        description="most messages of a batch that have a span of their own, of those whose "
        "sender recorded its trace; 0: none",
    )
    flush_timeout: Annotated[Duration, at_most(_LONGEST_FLUSH)] = Field(
        default=timedelta(seconds=2),
        description="at the end, the last spans are sent for so long and no longer",
    )

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
            has_more = bool(parts.query or parts.fragment or "@" in parts.netloc or parts.port == 0)
        except ValueError:
            is_address, has_more = False, False
        if not is_address or has_more:
            raise ValueError(
                "must be http(s)://HOST:PORT without a user; secrets go into "
                "OTEL_EXPORTER_OTLP_HEADERS"
            )
        return value


class LogFormat(StrEnum):
    """How log lines look; ``auto`` is text on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The least important kind of log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Log(Section):
    """What migrator says about itself, on stderr."""

    level: LogLevel = Field(default=LogLevel.INFO, description="least important lines to write")
    format: LogFormat = Field(
        default=LogFormat.AUTO, description="auto: text on a terminal, else JSON"
    )
