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

from migrator.config.secrets import closed_key
from migrator.config.values import (
    DEFAULTS,
    EMPTY_IS_NONE,
    UTC_NAME,
    OptionalDuration,
    PositiveDuration,
    Section,
    Size,
    ZoneName,
    checked,
    demand,
)
from migrator.delays.routing import DelaysVersion, Topology
from migrator.stores.azure.partitions import parse_scope

_TABLE: Final = demand(
    re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}").fullmatch,
    "must be 3 to 63 letters and digits, a letter first",
)
_CONTAINER: Final = demand(
    re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(-[a-z0-9]+)*").fullmatch,
    "must be 3 to 63 lower case letters, digits and single hyphens",
)
_COLUMNS: Final = ("Id", "Destination", "SagaId", "State", "Endpoint", "Time", "Headers")


class StoreKind(StrEnum):
    SQL = "sql"
    NHIBERNATE = "nhibernate"
    AZURE = "azure"
    RAVENDB = "ravendb"

    @property
    def has_own_ledger(self) -> bool:
        """The ledger is in its own database, because the store is not SQL."""
        return self not in (StoreKind.SQL, StoreKind.NHIBERNATE)


class Bodies(StrEnum):
    REMOVE = "remove"
    KEEP = "keep"


class Azure(Section):
    """Azure Storage Persistence: where its timeouts are, when the defaults do not apply."""

    table: Annotated[str, _TABLE] = "TimeoutDataTableName"
    """the timeouts' table (TimeoutDataTableName)"""
    container: Annotated[str, _CONTAINER] = "timeoutstate"
    """the bodies' container (TimeoutStateContainerName)"""
    partition_key_scope: Annotated[str, checked(parse_scope)] = "yyyyMMddHH"
    """format of time entries' partition keys"""
    requests: int = Field(default=32, ge=1, le=256)
    """concurrent requests"""
    bodies: Bodies = Bodies.REMOVE
    """`remove` a timeout's blob once it is claimed, or `keep` it until an operator deletes the
    container"""


class NHibernate(Section):
    """NHibernate: the name of the table of all endpoints, when the defaults do not apply."""

    table: str = Field(default="TimeoutEntity", min_length=1)
    """the table, in any letter case"""
    columns: dict[str, str] = Field(default={})
    """names of columns, by those of NServiceBus, where they differ"""

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
    """The form of requests; ``auto``: ask the server."""

    AUTO = "auto"
    CLASSIC = "3.5"
    MODERN = "4"
    """This one and all later ones."""


_Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class ClientTls(Section):
    ca_file: Path | None = None
    """certificates to trust, instead of the system's"""
    cert_file: Path | None = None
    """client certificate (PEM)"""
    key_file: Annotated[Path, AfterValidator(closed_key)] | None = None
    """key of the client certificate (PEM)"""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("must have both cert_file and key_file, or neither")
        return self


class RavenDb(ClientTls):
    """RavenDB; only read when store.kind is ravendb."""

    database: _Name | None = None
    """the database, on the server that store.url names"""
    version: RavenVersion = RavenVersion.AUTO
    """3.5; 4 for 4.0 and later; auto: ask the server"""
    collections: Annotated[tuple[_Name, ...], demand(bool, "must name at least one")] = (
        "TimeoutDatas",
        "TimeoutData",
    )
    """where timeouts are"""
    prefixes: tuple[_Name, ...] = ()
    """what ids of timeouts begin with; none: each collection's name and a slash"""
    unowned: Annotated[_Name | None, EMPTY_IS_NONE] = None
    """the endpoint that timeouts without an owner belong to; empty: none is claimed"""
    request_timeout: PositiveDuration = timedelta(seconds=30)
    """longest wait for the next part of an answer"""


class Store(Section):
    """The legacy store; a SQL database also contains the ledger."""

    kind: StoreKind = StoreKind.SQL
    """kind of legacy store"""
    url: SecretStr | None = None
    """database URL, or connection string of Azure Storage"""
    url_file: Path | None = None
    """file that holds the URL; a bare name is a systemd credential"""
    schema_name: str | None = Field(default=None, alias="schema", min_length=1)
    """schema of the timeout tables"""
    ledger_schema: str = Field(default="migrator", min_length=1)
    """schema of the ledger"""
    time_zone: ZoneName = UTC_NAME
    """zone of the due column, where Npgsql 6 or later wrote local time"""
    accept_shifted_due_times: bool = False
    """true: use the due column, though it is whole quarter hours off the Expire header"""
    nhibernate: NHibernate = DEFAULTS
    azure: Azure = DEFAULTS
    ravendb: RavenDb = DEFAULTS

    @property
    def local_zone(self) -> str | None:
        """None: due columns are in UTC."""
        return None if self.time_zone == UTC_NAME else self.time_zone

    @model_validator(mode="after")
    def _has_local_time(self) -> Self:
        is_other = self.url is not None and not self.url.get_secret_value().startswith("postgres")
        if self.local_zone is not None and (self.kind.has_own_ledger or is_other):
            raise ValueError(
                "time_zone must be UTC with this store: only on PostgreSQL can the vendor's stack "
                "have written local times"
            )
        return self


class Ledger(Section):
    """The ledger: its database, if the store is not SQL, and how long completed rows are kept."""

    url: SecretStr | None = None
    """database URL of the ledger; for a SQL store leave it empty"""
    url_file: Path | None = None
    """file that holds the URL; a bare name is a systemd credential"""
    purge_after: OptionalDuration = None
    """rows completed and due longer ago permanently lose their content, as by `migrator db purge`;
    empty: never"""
    purge_every: PositiveDuration = timedelta(hours=1)
    """how often that is done"""


class Tls(ClientTls):
    """TLS to the broker, for ``amqps://`` addresses."""

    verify: bool = True
    """check the broker's certificate and name"""


_BETWEEN: Final = re.compile(r"[\r\n]+|,\s*(?=(?:amqps?|https?)://|host\s*=)", re.IGNORECASE)
"""A comma may be part of a password; a separating one is followed by an address."""


def _one_per_line(value: object) -> object:
    """Return a list of addresses as one text, which stays secret as a whole."""
    given = value if isinstance(value, list) else [value]
    texts = [each for each in given if isinstance(each, str)]
    if len(texts) < len(given) or not texts:
        return value
    found = (line.strip() for text in texts for line in _BETWEEN.split(text))
    return "\n".join(line for line in found if line)


Addresses = Annotated[SecretStr, BeforeValidator(_one_per_line)]
"""One address, or several: a list in the file, one per line, or separated by commas."""


class Broker(Section):
    """RabbitMQ, where messages wait from now on."""

    url: Addresses | None = None
    """amqp:// URL, or the transport's host=…;username=… form; a list: one per node of the
    cluster"""
    url_file: Path | None = None
    """file that holds the URL, or one per line; a bare name is a systemd credential"""
    management_url: Addresses | None = None
    """management API, or a list of them; without it some checks are not made"""
    management_url_file: Path | None = None
    """file that holds the URL, or one per line; a bare name is a systemd credential"""
    delays: DelaysVersion = DelaysVersion.V2
    """version of native delays"""
    topology: Topology = Topology.AUTO
    """how endpoints are reached"""
    all_endpoints_support_delayed_delivery: bool = False
    """true: never bind a destination, a missing binding is refused"""
    tls: Tls = DEFAULTS
    blocked_deadline: PositiveDuration = timedelta(minutes=5)
    """longest wait for a broker under a resource alarm"""
    confirm_deadline: PositiveDuration = timedelta(minutes=1)
    """longest wait for an answer to a publish"""
    recheck_interval: OptionalDuration = timedelta(minutes=10)
    """how often a running daemon repeats the checks of the broker; empty: never"""
    max_message_bytes: Annotated[Size, Field(ge=1, le=2**31 - 1)] = 134_217_728
    """the broker's limit for a message body"""
    prefetch_bytes: Annotated[Size, Field(ge=1)] = 64 * 2**20
    """bytes of received messages, properties included, in memory at a time, for each connection;
    the last may exceed it"""
