"""What can be set about the two servers: the legacy database and the broker."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from migrator.config.azure import Azure
from migrator.config.nhibernate import NHibernate
from migrator.config.quantities import SOME_TIME, UTC_NAME, Duration, Size, ZoneName
from migrator.config.ravendb import RavenDb
from migrator.config.section import Section
from migrator.delays.routing import DelaysVersion, Topology


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


def _none_when_empty(value: object) -> object:
    return None if value == "" else value


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
    blocked_deadline: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(minutes=5), description="longest wait for a broker under a resource alarm"
    )
    confirm_deadline: Annotated[Duration, SOME_TIME] = Field(
        default=timedelta(minutes=1), description="longest wait for an answer to a publish"
    )
    recheck_interval: Annotated[
        Annotated[Duration, SOME_TIME] | None, BeforeValidator(_none_when_empty)
    ] = Field(
        default=timedelta(minutes=10),
        description="how often a running daemon makes the checks of the broker again; empty: never",
    )
    max_message_bytes: Annotated[Size, Field(ge=1, le=2**31 - 1)] = Field(
        default=134_217_728, description="the broker's limit for a message body"
    )
