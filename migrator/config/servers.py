"""What can be set about the servers: the legacy store of each kind, the ledger, and the broker."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from migrator.config.values import (
    EMPTY_IS_NONE,
    UTC_NAME,
    Cron,
    MaybeTime,
    Section,
    Size,
    SomeTime,
    ZoneName,
    parse_interval,
)
from migrator.delays.routing import DelaysVersion, Topology
from migrator.stores.azure.partitions import parse_scope

_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_CONTAINER: Final = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_COLUMNS: Final = ("Id", "Destination", "SagaId", "State", "Endpoint", "Time", "Headers")
_NIGHTLY: Final = "0 3 * * *"


class StoreKind(StrEnum):
    """Kinds of legacy stores this version can read."""

    SQL = "sql"
    NHIBERNATE = "nhibernate"
    AZURE = "azure"
    RAVENDB = "ravendb"

    @property
    def has_own_ledger(self) -> bool:
        """Whether the ledger is in a database of its own: the store is none."""
        return self not in (StoreKind.SQL, StoreKind.NHIBERNATE)


class Azure(Section):
    """Azure Storage Persistence: where its timeouts are, when the defaults do not say."""

    table: str = Field(
        default="TimeoutDataTableName", description="the timeouts' table (TimeoutDataTableName)"
    )
    container: str = Field(
        default="timeoutstate", description="the bodies' container (TimeoutStateContainerName)"
    )
    partition_key_scope: str = Field(
        default="yyyyMMddHH", description="format of time entries' partition keys"
    )
    requests: int = Field(default=32, ge=1, le=256, description="requests under way at a time")

    @field_validator("table")
    @classmethod
    def _names_a_table(cls, value: str) -> str:
        if not _TABLE.fullmatch(value):
            raise ValueError("must be 3 to 63 letters and digits, a letter first")
        return value

    @field_validator("container")
    @classmethod
    def _names_a_container(cls, value: str) -> str:
        if not _CONTAINER.fullmatch(value):
            raise ValueError("must be 3 to 63 lower case letters, digits and single hyphens")
        return value

    @field_validator("partition_key_scope")
    @classmethod
    def _is_a_scope(cls, value: str) -> str:
        parse_scope(value)
        return value


class NHibernate(Section):
    """NHibernate: how the table of all endpoints is called, when the defaults do not say."""

    table: str = Field(
        default="TimeoutEntity", min_length=1, description="the table, in any letter case"
    )
    columns: dict[str, str] = Field(
        default={}, description="names of columns, by those of NServiceBus, where they differ"
    )

    @field_validator("columns")
    @classmethod
    def _are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted({*value} - {*_COLUMNS}):
            names = ", ".join(_COLUMNS)
            raise ValueError(f"must name columns among {names}; not {', '.join(unknown)}")
        if not all(name.strip() for name in value.values()):
            raise ValueError("must name columns, none empty")
        return value


class RavenVersion(StrEnum):
    """What form of requests the server takes; ``auto``: it is asked."""

    AUTO = "auto"
    CLASSIC = "3.5"
    MODERN = "4"
    """This one and all later ones."""


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
    unowned: Annotated[_Name | None, EMPTY_IS_NONE] = Field(
        default=None,
        description="the endpoint that timeouts without an owner belong to; empty: none is claimed",
    )
    ca_file: Path | None = Field(
        default=None, description="certificates to trust, instead of the system's"
    )
    cert_file: Path | None = Field(default=None, description="client certificate (PEM)")
    key_file: Path | None = Field(default=None, description="key of the client certificate (PEM)")
    request_timeout: SomeTime = Field(
        default=timedelta(seconds=30), description="longest wait for a part of an answer"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("must have both cert_file and key_file, or neither")
        return self


class Store(Section):
    """The legacy store; in a SQL database, the ledger lives beside it."""

    kind: StoreKind = Field(default=StoreKind.SQL, description="kind of legacy store")
    url: SecretStr | None = Field(
        default=None, description="database URL, or connection string of Azure Storage"
    )
    url_file: Path | None = Field(
        default=None, description="file that holds the URL; a bare name is a systemd credential"
    )
    schema_name: str | None = Field(
        default=None, alias="schema", min_length=1, description="schema of the timeout tables"
    )
    ledger_schema: str = Field(default="migrator", min_length=1, description="schema of the ledger")
    time_zone: ZoneName = Field(
        default=UTC_NAME,
        description="zone of the due column, where Npgsql 6 or later wrote local time",
    )
    accept_shifted_due_times: bool = Field(
        default=False,
        description="true: the due column counts, though it is whole quarter hours from the "
        "Expire header",
    )
    nhibernate: NHibernate = Field(default=NHibernate(), description="")
    azure: Azure = Field(default=Azure(), description="")
    ravendb: RavenDb = Field(default=RavenDb(), description="")

    @property
    def local_zone(self) -> str | None:
        """The zone of due columns; None: they hold UTC."""
        return None if self.time_zone == UTC_NAME else self.time_zone

    @model_validator(mode="after")
    def _has_local_time(self) -> Self:
        is_other = self.url is not None and not self.url.get_secret_value().startswith("postgres")
        if self.local_zone is not None and (self.kind.has_own_ledger or is_other):
            raise ValueError(
                "time_zone must be UTC with this store: only on PostgreSQL can the vendor's stack "
                "have written local time"
            )
        return self


class Ledger(Section):
    """The ledger: its database, if the store is none, and how long settled rows are kept."""

    url: SecretStr | None = Field(
        default=None, description="database URL of the ledger; for a SQL store leave it empty"
    )
    url_file: Path | None = Field(
        default=None, description="file that holds the URL; a bare name is a systemd credential"
    )
    purge_after: MaybeTime = Field(
        default=None,
        description="rows settled and due longer ago lose their content for good, as by `migrator "
        "ledger purge`; empty: never",
    )
    purge_when: str = Field(
        default=_NIGHTLY,
        description="when that is done: a cron expression in UTC, or a duration between two",
    )

    @property
    def purge_rhythm(self) -> timedelta | Cron:
        """When to purge, parsed."""
        return parse_interval(self.purge_when)

    @field_validator("purge_when")
    @classmethod
    def _is_rhythm(cls, value: str) -> str:
        if value != _NIGHTLY:  # a verb that does not purge need not import the scheduler for it
            parse_interval(value)
        return value


class Tls(Section):
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


_BETWEEN: Final = re.compile(r"[\r\n]+|,\s*(?=(?:amqps?|https?)://|host\s*=)", re.IGNORECASE)
"""A comma may stand in a password; one that separates has an address behind it."""


def _one_per_line(value: object) -> object:
    """Return a list of addresses as one text, which stays secret as a whole."""
    given = value if isinstance(value, list) else [value]
    texts = [each for each in given if isinstance(each, str)]
    if len(texts) < len(given) or not texts:
        return value
    found = (line.strip() for text in texts for line in _BETWEEN.split(text))
    return "\n".join(line for line in found if line)


Addresses = Annotated[SecretStr, BeforeValidator(_one_per_line)]
"""One address, or several: a list in the file, one per line, or with commas between."""


class Broker(Section):
    """RabbitMQ, where messages wait from now on."""

    url: Addresses | None = Field(
        default=None,
        description="amqp:// URL, or the transport's host=…;username=… form; "
        "a list: one per node of the cluster",
    )
    url_file: Path | None = Field(
        default=None,
        description="file that holds the URL, or one per line; a bare name is a systemd credential",
    )
    management_url: Addresses | None = Field(
        default=None,
        description="management API, or a list of them; without it some checks are not made",
    )
    management_url_file: Path | None = Field(
        default=None,
        description="file that holds the URL, or one per line; a bare name is a systemd credential",
    )
    delays: DelaysVersion = Field(
        default=DelaysVersion.V2, description="generation of native delays"
    )
    topology: Topology = Field(default=Topology.AUTO, description="how endpoints are reached")
    all_endpoints_support_delayed_delivery: bool = Field(
        default=False, description="true: never bind a destination, a missing binding is refused"
    )
    tls: Tls = Field(default=Tls(), description="")
    blocked_deadline: SomeTime = Field(
        default=timedelta(minutes=5), description="longest wait for a broker under a resource alarm"
    )
    confirm_deadline: SomeTime = Field(
        default=timedelta(minutes=1), description="longest wait for an answer to a publish"
    )
    recheck_interval: MaybeTime = Field(
        default=timedelta(minutes=10),
        description="how often a running daemon makes the checks of the broker again; empty: never",
    )
    max_message_bytes: Annotated[Size, Field(ge=1, le=2**31 - 1)] = Field(
        default=134_217_728, description="the broker's limit for a message body"
    )
