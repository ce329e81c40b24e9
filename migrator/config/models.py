"""What can be set, with its default, its limits and its meaning. Frozen; unknown keys are errors.

A field's description is shown by ``migrator config show`` and tested to be in the docs.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from migrator.config.quantities import Duration, Size, longer_than
from migrator.domain.delays import MAX_DELAY_S
from migrator.domain.routing import DelaysVersion, Topology
from migrator.domain.states import Mode

HEARTBEAT: Final = timedelta(seconds=5)
"""AMQP heartbeat of our connections."""
_SHORTEST_LEASE: Final = 3 * HEARTBEAT
"""A broker closes a silent connection after two to three heartbeats; a lane stays ours longer."""

MAX_BATCH_ROWS: Final = 10_000
"""Three batches must fit a consumer's prefetch, which has 16 bits."""
_SOME_TIME: Final = longer_than(timedelta(0))


class StoreKind(StrEnum):
    """Kinds of legacy stores this version can read."""

    SQL = "sql"


class EndpointMode(StrEnum):
    """What migrator does for an endpoint."""

    MIGRATE = "migrate"
    DISPATCH = "dispatch"
    FORWARD = "forward"


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


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def _none_when_empty(value: object) -> object:
    return None if value == "" else value


class Store(_Section):
    """The legacy database; the ledger lives in it, too."""

    kind: StoreKind = Field(default=StoreKind.SQL, description="kind of legacy store")
    url: SecretStr | None = Field(default=None, description="database URL, passed on as it is")
    url_file: Path | None = Field(
        default=None, description="file that holds the URL; a bare name is a systemd credential"
    )
    schema_name: str | None = Field(
        default=None, alias="schema", min_length=1, description="schema of the timeout tables"
    )
    ledger_schema: str = Field(default="migrator", min_length=1, description="schema of the ledger")

    @field_validator("kind", mode="before")
    @classmethod
    def _is_implemented(cls, value: object) -> object:
        if value in ("nhibernate", "azure", "ravendb"):
            raise ValueError(f"{value} is not in this version; must be sql")
        return value


class Tls(_Section):
    """TLS to the broker, for ``amqps://`` addresses."""

    ca_file: Path | None = Field(
        default=None, description="certificates to trust, instead of the system's"
    )
    cert_file: Path | None = Field(default=None, description="client certificate (PEM)")
    key_file: Path | None = Field(default=None, description="key of the client certificate (PEM)")
    verify: bool = Field(default=True, description="check the broker's certificate and name")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("must have both cert_file and key_file, or neither")
        return self


class Broker(_Section):
    """RabbitMQ, where messages wait from now on."""

    url: SecretStr | None = Field(
        default=None, description="amqp:// URL, or the transport's host=…;username=… form"
    )
    url_file: Path | None = Field(
        default=None, description="file that holds the URL; a bare name is a systemd credential"
    )
    management_url: SecretStr | None = Field(
        default=None, description="management API; without it some checks are not made"
    )
    management_url_file: Path | None = Field(
        default=None, description="file that holds the URL; a bare name is a systemd credential"
    )
    delays: DelaysVersion = Field(
        default=DelaysVersion.V2, description="generation of native delays"
    )
    topology: Topology = Field(default=Topology.AUTO, description="how endpoints are reached")
    all_endpoints_support_delayed_delivery: bool = Field(
        default=False, description="true: never bind a destination, a missing binding is refused"
    )
    tls: Tls = Field(default=Tls(), description="")
    blocked_deadline: Annotated[Duration, _SOME_TIME] = Field(
        default=timedelta(minutes=5), description="longest wait for a broker under a resource alarm"
    )
    confirm_deadline: Annotated[Duration, _SOME_TIME] = Field(
        default=timedelta(minutes=1), description="longest wait for an answer to a publish"
    )
    max_message_bytes: Annotated[Size, Field(ge=1, le=2**31 - 1)] = Field(
        default=134_217_728, description="the broker's limit for a message body"
    )


class HandOver(_Section):
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
    horizon: Annotated[
        Annotated[Duration, _SOME_TIME] | None, BeforeValidator(_none_when_empty)
    ] = Field(
        default=None, description="rows due later stay in the store; empty: the longest delay"
    )
    rate_limit: int = Field(default=0, ge=0, description="messages per second; 0: none")
    window: int = Field(default=2000, ge=1, le=65_535, description="messages without an answer yet")
    window_bytes: Annotated[Size, Field(ge=1)] = Field(
        default=32 * 2**20, description="bytes without an answer yet"
    )
    use_entries: bool = Field(
        default=True, description="publish by our own entry exchanges where allowed"
    )
    sweep_interval: Annotated[Duration, _SOME_TIME] = Field(
        default=timedelta(seconds=1), description="pause after a look that found nothing"
    )
    lease: Annotated[Duration, longer_than(_SHORTEST_LEASE)] = Field(
        default=timedelta(seconds=20),
        description="how long a lane stays ours without a sign of life",
    )
    receipt_deadline: Annotated[Duration, _SOME_TIME] = Field(
        default=timedelta(minutes=10), description="wait for a receipt before a batch is doubtful"
    )
    destination_map: dict[str, str] = Field(
        default={}, description="old queue name to new queue name"
    )
    accept_suffix_collisions: bool = Field(
        default=False, description="go on although a message would reach a second queue, too"
    )

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


class Endpoint(_Section):
    """One sending endpoint and where its rows are."""

    name: str = Field(min_length=1, description="the sending endpoint's name")
    mode: EndpointMode = Field(default=EndpointMode.MIGRATE, description="what to do for it")
    table_prefix: str | None = Field(
        default=None, description="prefix of its table, when it is not the name"
    )
    table: str | None = Field(
        default=None, min_length=1, description="its table, when nothing else fits"
    )
    schema_name: str | None = Field(
        default=None, alias="schema", min_length=1, description="schema of its table"
    )

    @field_validator("mode")
    @classmethod
    def _is_implemented(cls, value: EndpointMode) -> EndpointMode:
        if value is not EndpointMode.MIGRATE:
            raise ValueError(f"{value} is not in this version; must be migrate")
        return value

    @model_validator(mode="after")
    def _has_one_table(self) -> Self:
        if self.table is not None and self.table_prefix is not None:
            raise ValueError("must have table or table_prefix, not both")
        return self


class Log(_Section):
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
    endpoints: tuple[Endpoint, ...] = ()
    log: Log = Log()

    @field_validator("endpoints")
    @classmethod
    def _are_distinct(cls, value: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        twice = sorted(n for n, times in Counter(e.name for e in value).items() if times > 1)
        if twice:
            raise ValueError(f"must name each endpoint once; repeated: {', '.join(twice)}")
        return value

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
