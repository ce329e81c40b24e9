"""All settings, and what has to hold between sections. Frozen; unknown keys are errors.

The sections about a running process are here: its control and status, hooks and log. A
field's description is shown by ``migrator config`` and tested to be in the docs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator, model_validator

from migrator.config.servers import Broker, Ledger, Store, StoreKind
from migrator.config.sources import AUTO
from migrator.config.values import (
    DEFAULTS,
    EMPTY_IS_NONE,
    SAME_FILE,
    PositiveDuration,
    Section,
    at_most,
    checked,
    demand,
)
from migrator.config.work import (
    Dispatch,
    Endpoint,
    EndpointMode,
    HandOver,
    NearDue,
    Probe,
    ThrottleSettings,
)
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName


def _is_token(value: SecretStr) -> bool:
    text = value.get_secret_value()
    return len(text) >= 16 and text.isascii() and text.isprintable()  # shorter ones can be guessed


_LONG: Final = demand(_is_token, "must have at least 16 characters, all of them ASCII")


def _address(text: str) -> tuple[str, int]:
    with suppress(ValueError):
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port is not None and parts.netloc == text and "@" not in text:
            return parts.hostname, parts.port
    raise ValueError("must be an address and a port, such as 127.0.0.1:9464 or [::1]:9464")


class Web(Section):
    """How a running daemon is queried and controlled: a socket file, and HTTP if configured."""

    socket: Annotated[Path | Literal["auto"] | None, EMPTY_IS_NONE, SAME_FILE] = AUTO
    """file of the control socket, one for each daemon on a machine; auto: in the runtime folder of
    the service or the user, if there is one; empty: none"""
    listen: Annotated[str | None, EMPTY_IS_NONE, checked(_address)] = None
    """address and port for HTTP, such as 127.0.0.1:9464; empty: none"""
    token: Annotated[SecretStr | None, _LONG] = None
    """required by the page and over HTTP; without one, both are read-only, and only on this
    machine"""
    token_file: Path | None = None
    """file that holds the token; a bare name is a systemd credential"""
    title: str = ""
    """what the status page is called, such as the name of the system; empty: migrator"""
    open_to_local: bool = False
    """true: on this machine, the page and /status can be read without the token"""
    behind_tls: bool = False
    """true: web.listen may be an address that others can reach: a TLS proxy is in front of it, or
    the network between containers of one machine"""

    @property
    def address(self) -> tuple[str, int] | None:
        return None if self.listen is None else _address(self.listen)

    @model_validator(mode="after")
    def _is_reached_by_others_on_purpose(self) -> Self:
        if self.address is None or is_loopback(self.address[0]):
            return self
        if not self.behind_tls:
            raise ValueError(
                "listen must be a loopback address, such as 127.0.0.1: the daemon has no TLS, and "
                "the token could be read in transit; if a TLS proxy is in front, set behind_tls = "
                "true"
            )
        if self.token is None:
            raise ValueError("a token is required when listen is not a loopback address")
        if self.open_to_local:
            raise ValueError(
                "open_to_local must be false when other machines can reach listen: behind a "
                "proxy, every client seems to be on this machine"
            )
        return self


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach, or be, *host*; False for unknown names."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


_PROGRAM: Final = demand(
    Path.is_absolute, "must be an absolute path to a program, without arguments"
)
Program = Annotated[Path | None, EMPTY_IS_NONE, _PROGRAM]


class Hooks(Section):
    """Your programs, run on events; the daemon does not wait for them."""

    start: Program = None
    """run when the work has begun; empty: none"""
    throttle: Program = None
    """run when claiming is paused or resumed"""
    quarantine: Program = None
    """run when rows went into quarantine, once for several"""
    finished: Program = None
    """run when nothing is left to move"""
    rollback: Program = None
    """run when rollback or recall put rows back"""
    failure: Program = None
    """run when the process ends with an exit code other than 0 or 5"""
    timeout: Annotated[PositiveDuration, at_most(timedelta(minutes=1))] = timedelta(seconds=30)
    """a program that runs longer is killed, with all it started"""

    @property
    def programs(self) -> Mapping[str, Path]:
        return {name: value for name, value in self if isinstance(value, Path)}


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Log(Section):
    """The log, on stderr."""

    level: LogLevel = LogLevel.INFO
    """least important lines to write"""
    format: LogFormat = LogFormat.AUTO
    """auto: text on a terminal, else JSON"""


class Settings(Section):
    """All settings; only ``load`` builds them, because it merges the sources."""

    store: Store = DEFAULTS
    broker: Broker = DEFAULTS
    handover: HandOver = DEFAULTS
    dispatch: Dispatch = DEFAULTS
    probe: Probe = DEFAULTS
    throttle: ThrottleSettings = DEFAULTS
    ledger: Ledger = DEFAULTS
    endpoints: tuple[Endpoint, ...] = ()
    web: Web = DEFAULTS
    hooks: Hooks = DEFAULTS
    log: Log = DEFAULTS

    def endpoint(self, name: str) -> Endpoint:
        return next((e for e in self.endpoints if e.name == name), Endpoint(name=name))

    def sends_near_due(self, name: str) -> bool:
        """Return whether migrator itself sends rows of *name* that are due before the cutoff."""
        is_wished = self.handover.near_due is NearDue.DISPATCH
        return is_wished or self.endpoint(name).mode is not EndpointMode.MIGRATE

    @field_validator("endpoints")
    @classmethod
    def _are_distinct(cls, value: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        twice = sorted(n for n, times in Counter(e.name for e in value).items() if times > 1)
        if twice:
            raise ValueError(f"must name each endpoint once; repeated: {', '.join(twice)}")
        queues = Counter(e.input_queue for e in value if e.mode is not EndpointMode.MIGRATE)
        shared = sorted(queue for queue, times in queues.items() if times > 1)
        if shared:
            raise ValueError(f"must each have a queue of their own; shared: {', '.join(shared)}")
        return value

    @model_validator(mode="after")
    def _has_one_ledger(self) -> Self:
        given, store = self.ledger.url, self.store
        if store.kind.has_own_ledger or given is None or not given.get_secret_value():
            return self
        if store.url is None or store.url.get_secret_value() != given.get_secret_value():
            raise ValueError(
                f"ledger.url must be empty with store.kind {store.kind}: its ledger is in the "
                "store's own database"
            )
        return self

    @model_validator(mode="after")
    def _can_be_dispatched(self) -> Self:
        if not self.store.kind.has_own_ledger:
            return self
        dispatched = [e.name for e in self.endpoints if e.mode is not EndpointMode.MIGRATE]
        if self.handover.near_due is NearDue.DISPATCH:
            dispatched.append("handover.near_due")
        if dispatched:
            raise ValueError(
                f"store.kind {self.store.kind} can only be migrated from: dispatch and forward "
                f"need a SQL store (set for: {', '.join(dispatched)}); leave these endpoints to "
                "the timeout manager"
            )
        return self

    @model_validator(mode="after")
    def _places_fit_the_store(self) -> Self:
        placed = [each.name for each in self.endpoints if each.has_place]
        if self.store.kind is StoreKind.NHIBERNATE and placed:
            raise ValueError(
                f"endpoints must not have tables of their own: {', '.join(placed)}; all are in "
                "that of store.nhibernate"
            )
        return self

    @model_validator(mode="after")
    def _have_tables_of_their_own(self) -> Self:
        places = Counter(
            (each.schema_name or self.store.schema_name, each.table or each.table_prefix)
            for each in self.endpoints
            if each.table or each.table_prefix
        )
        shared = sorted(table for (_, table), times in places.items() if table and times > 1)
        if shared:
            raise ValueError(
                "endpoints must each have a table of their own, or only one of them is served; "
                f"named twice: {', '.join(shared)}"
            )
        return self

    @model_validator(mode="after")
    def _keep_failed_messages_apart(self) -> Self:
        served = [each for each in self.endpoints if each.mode is not EndpointMode.MIGRATE]
        consumed = {
            name(QueueName(each.input_queue))
            for each in served
            for name in (timeouts_queue, dispatcher_queue)
        }
        for each in served:
            queue = each.error_queue or self.dispatch.error_queue
            if queue in consumed:
                raise ValueError(
                    f"the error queue of {each.name} must not be {queue}: what failed for good "
                    "would be consumed again, without end; name a queue that only people read"
                )
        return self

    @model_validator(mode="after")
    def _remembers_what_was_sent(self) -> Self:
        after = self.ledger.purge_after
        if after is not None and after < self.dispatch.remember:
            raise ValueError("ledger.purge_after must not be shorter than dispatch.remember")
        return self
