"""What can be set about status, metrics and control of a running daemon."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from migrator.config.section import Section, none_when_empty

AUTO: Final = "auto"
_SHORTEST_TOKEN_CHARS: Final = 16
"""Shorter ones can be guessed."""


class Web(Section):
    """How a running daemon is asked and told: a socket file, and HTTP when wanted."""

    socket: Annotated[Path | Literal["auto"] | None, BeforeValidator(none_when_empty)] = Field(
        default=AUTO,
        description="file of the control socket, one for each daemon on a machine; auto: in the "
        "runtime folder of the service or the user, if there is one; empty: none",
    )
    listen: Annotated[str | None, BeforeValidator(none_when_empty)] = Field(
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

    @field_validator("socket")
    @classmethod
    def _is_absolute(cls, value: Path | Literal["auto"] | None) -> Path | Literal["auto"] | None:
        if isinstance(value, Path) and not value.is_absolute():
            raise ValueError("must be an absolute path, so that everybody means the same file")
        return value

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
