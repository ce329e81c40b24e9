"""What can be set, with its default, its limits and its meaning. Frozen; unknown keys are errors.

A field's description is shown by ``migrator config show`` and tested to be in the docs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from migrator.config.dispatch import Dispatch
from migrator.config.handover import HandOver, NearDue
from migrator.config.hooks import Hooks
from migrator.config.ledger import Ledger
from migrator.config.quantities import SOME_TIME, Duration
from migrator.config.section import Section, none_when_empty
from migrator.config.servers import Broker, Store, StoreKind
from migrator.config.telemetry import Telemetry
from migrator.config.throttle import Throttle
from migrator.config.web import Web
from migrator.delays.probe_results import probe_delay_s
from migrator.delays.routing import parse_levels


class EndpointMode(StrEnum):
    """What migrator does for an endpoint."""

    MIGRATE = "migrate"
    """Move its rows into the native delays."""
    DISPATCH = "dispatch"
    """Be its timeout manager: store, and send when due."""
    FORWARD = "forward"
    """Move its rows, and put its new timeouts into the native delays at once."""


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


class Canary(Section):
    """Probes that a running daemon sends through the delay levels, to see when they come out."""

    every: Annotated[Annotated[Duration, SOME_TIME] | None, BeforeValidator(none_when_empty)] = (
        Field(default=None, description="how often probes are sent; empty: never")
    )
    levels: str = Field(
        default="0,1,2,3",
        description="through which levels; the probe of level n waits for 2ⁿ seconds",
    )
    warn_after: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(seconds=2), description="a probe that is later is warned of"
    )

    @property
    def probed_levels(self) -> Sequence[int]:
        """The levels, lowest first."""
        return parse_levels(self.levels)

    @field_validator("levels")
    @classmethod
    def _are_levels(cls, value: str) -> str:
        parse_levels(value)
        return value

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        longest_s = probe_delay_s(self.probed_levels[-1])
        if self.every is not None and self.every <= timedelta(seconds=longest_s):
            raise ValueError(
                f"every must be longer than {longest_s}s, for which the longest probe is away"
            )
        return self


class Endpoint(Section):
    """One sending endpoint: what to do for it, and where its rows and messages are."""

    name: str = Field(min_length=1, description="the sending endpoint's name")
    mode: EndpointMode = Field(default=EndpointMode.MIGRATE, description="what to do for it")
    queue: str | None = Field(
        default=None,
        min_length=1,
        description="its input queue, when it is not the name; .Timeouts and "
        ".TimeoutsDispatcher are named after it",
    )
    error_queue: str | None = Field(
        default=None,
        min_length=1,
        description="its error queue, when it is not dispatch.error_queue",
    )
    table_prefix: str | None = Field(
        default=None, description="prefix of its table, when it is not the name"
    )
    table: str | None = Field(
        default=None, min_length=1, description="its table, when nothing else fits"
    )
    schema_name: str | None = Field(
        default=None, alias="schema", min_length=1, description="schema of its table"
    )

    @property
    def input_queue(self) -> str:
        """The queue after which its satellites are named."""
        return self.queue or self.name

    @property
    def has_place(self) -> bool:
        """Whether it says where its own table is."""
        return any(each is not None for each in (self.table, self.table_prefix, self.schema_name))

    @model_validator(mode="after")
    def _has_one_table(self) -> Self:
        if self.table is not None and self.table_prefix is not None:
            raise ValueError("must have table or table_prefix, not both")
        return self


class Log(Section):
    """What migrator says about itself, on stderr."""

    level: LogLevel = Field(default=LogLevel.INFO, description="least important lines to write")
    format: LogFormat = Field(
        default=LogFormat.AUTO, description="auto: text on a terminal, else JSON"
    )


class Settings(BaseSettings):
    """All settings; built by ``load`` only, which merges the sources itself."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", validate_default=True)

    store: Store = Store()
    broker: Broker = Broker()
    handover: HandOver = HandOver()
    dispatch: Dispatch = Dispatch()
    canary: Canary = Canary()
    throttle: Throttle = Throttle()
    ledger: Ledger = Ledger()
    endpoints: tuple[Endpoint, ...] = ()
    web: Web = Web()
    hooks: Hooks = Hooks()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()

    def endpoint(self, name: str) -> Endpoint:
        """Return what is set for the endpoint called *name*, or the defaults."""
        return next((e for e in self.endpoints if e.name == name), Endpoint(name=name))

    @field_validator("endpoints")
    @classmethod
    def _are_distinct(cls, value: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        twice = sorted(n for n, times in Counter(e.name for e in value).items() if times > 1)
        if twice:
            raise ValueError(f"must name each endpoint once; repeated: {', '.join(twice)}")
        queues = Counter(e.input_queue for e in value if e.mode is not EndpointMode.MIGRATE)
        shared = sorted(queue for queue, times in queues.items() if times > 1)
        if shared:
            raise ValueError(f"must have a queue each; shared: {', '.join(shared)}")
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
                f"need a SQL store (set for: {', '.join(dispatched)}); leave these to the timeout "
                "manager"
            )
        return self

    @model_validator(mode="after")
    def _places_fit_the_store(self) -> Self:
        placed = [each.name for each in self.endpoints if each.has_place]
        if self.store.kind is StoreKind.NHIBERNATE and placed:
            raise ValueError(
                f"no endpoint may have a table of its own: {', '.join(placed)}; all are in that "
                "of store.nhibernate"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what ``load`` merged and nothing else, so that every value has a known origin."""
        return (init_settings,)

    @model_validator(mode="after")
    def _remembers_what_was_sent(self) -> Self:
        after = self.ledger.purge_after
        if after is not None and after < self.dispatch.remember:
            raise ValueError("ledger.purge_after must not be shorter than dispatch.remember")
        return self
