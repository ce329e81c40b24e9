"""What can be set, with its default, its limits and its meaning. Frozen; unknown keys are errors.

A field's description is shown by ``migrator config show`` and tested to be in the docs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from migrator.config.hooks import Hooks
from migrator.config.ledger import Ledger
from migrator.config.quantities import SOME_TIME, Duration, Size, at_most, longer_than
from migrator.config.section import Section
from migrator.config.servers import Broker, Store, StoreKind
from migrator.config.telemetry import Telemetry
from migrator.config.throttle import Throttle
from migrator.config.web import Web
from migrator.domain.canary import parse_levels, probe_delay_s
from migrator.domain.delays import MAX_DELAY_S
from migrator.domain.states import Mode

HEARTBEAT: Final = timedelta(seconds=5)
"""AMQP heartbeat of our connections."""
_SHORTEST_LEASE: Final = 3 * HEARTBEAT
"""A broker closes a silent connection after two to three heartbeats; a lane stays ours longer."""

MAX_BATCH_ROWS: Final = 10_000
"""Three batches must fit a consumer's prefetch, which has 16 bits."""
_AT_MOST_A_MINUTE: Final = at_most(timedelta(minutes=1))
_MAX_RETRIES: Final = 10
"""Each delay is a queue of its own."""


class EndpointMode(StrEnum):
    """What migrator does for an endpoint."""

    MIGRATE = "migrate"
    """Move its rows into the native delays."""
    DISPATCH = "dispatch"
    """Be its timeout manager: store, and send when due."""
    FORWARD = "forward"
    """Move its rows, and put its new timeouts into the native delays at once."""


class NearDue(StrEnum):
    """Who sends rows that are due too soon to be moved."""

    LEAVE = "leave"
    """The endpoint's own timeout manager."""
    DISPATCH = "dispatch"
    """Our dispatcher."""


class OnCritical(StrEnum):
    """What a dispatcher does once an outage has lasted too long."""

    KEEP_TRYING = "keep-trying"
    EXIT = "exit"


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


def _none_when_empty(value: object) -> object:
    return None if value == "" else value


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
    horizon: Annotated[Annotated[Duration, SOME_TIME] | None, BeforeValidator(_none_when_empty)] = (
        Field(
            default=None, description="rows due later stay in the store; empty: the longest delay"
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
    receipt_deadline: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(minutes=10), description="wait for a receipt before a batch is doubtful"
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
        if value is not None and value > timedelta(seconds=MAX_DELAY_S):
            raise ValueError(f"must be at most {MAX_DELAY_S}s, the longest native delay")
        return value

    @field_validator("destination_map")
    @classmethod
    def _names_queues(cls, value: dict[str, str]) -> dict[str, str]:
        if not all(old.strip() and new.strip() for old, new in value.items()):
            raise ValueError("must map one queue name to another, neither empty")
        return value


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


class Canary(Section):
    """Probes that a running daemon sends through the delay levels, to see when they come out."""

    every: Annotated[Annotated[Duration, SOME_TIME] | None, BeforeValidator(_none_when_empty)] = (
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
