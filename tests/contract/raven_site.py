"""RavenDB beside a ledger: the strict server of both families, and real ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from dev.raven_parts import VERSIONS
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from tests.contract.any_site import LegacyRow
from tests.contract.document_site import DocumentSite, Sight
from tests.support.raven_boundary import Boundary

PREFIX = "0"
"""How all ids of these tests begin: GUIDs, which the application chose; ids as NServiceBus makes
them are in ``tests/integration/test_ravendb_server``."""


@dataclass
class RavenSite(DocumentSite):
    """A database of RavenDB beside a ledger."""

    legacy: Boundary = field(kw_only=True)

    due_digits: ClassVar[int] = 7
    first_time: ClassVar[str] = "0001-01-01 00:00:00.0000000"
    last_time: ClassVar[str] = "9999-12-31 23:59:59.9999999"

    def open_documents(self) -> RavenStore:
        """Return the adapter."""
        url, database = self.legacy.address
        server = ServerSettings(url=url, database=database)
        return RavenStore(RavenOptions(server=server, prefixes=[PREFIX]))

    @property
    def unusable_times(self) -> Sequence[str | None]:
        """Due times that a timeout may have, and at which no timeout manager would send it."""
        return (None, "soon")

    def put(self, row: LegacyRow, owner: str, **more: object) -> None:
        """Store a document."""
        content = {
            "Destination": row.destination,
            "SagaId": row.saga_id,
            "State": None if row.body is None else base64.b64encode(row.body).decode(),
            "Time": None if row.due is None else row.due.replace(" ", "T") + "Z",
            "OwningTimeoutManager": owner,
            "Headers": _headers(row.headers),
            "PersistenceVersion": row.version,
        }
        self.legacy.store(row.id, content | more, **self._metadata)

    @property
    def _metadata(self) -> dict[str, str]:
        """What NServiceBus leaves beside a timeout."""
        key = "Raven-Entity-Name" if self.legacy.family == "3.5" else "@collection"
        kind = "NServiceBus.TimeoutPersisters.RavenDB.TimeoutData, NServiceBus.RavenDB"
        return {key: "TimeoutDatas", "Raven-Clr-Type": kind}

    @contextmanager
    def vendor_run(self) -> Iterator[None]:
        """Leave the tool's own document, and take it away as the tool does."""
        state = "TimeoutMigrationTool/State"
        told = {"Endpoint": self.endpoint_name, "Status": "StoragePrepared"}
        self.legacy.store(state, told, **self._metadata)
        yield
        self.legacy.remove(state)

    def put_flawed(self, row: LegacyRow) -> None:
        """Store a row whose body is no Base64."""
        self.put(row, self.endpoint_name, State="no base64!")

    def look(self) -> Sight:
        """Return all documents."""
        found = {each.id: each for each in self.legacy.documents.values()}
        evidence = [id_ for id_ in found if id_.startswith("migrator/")]
        timeouts = {id_: each for id_, each in found.items() if id_.startswith(PREFIX)}
        owners = {id_: each.content["OwningTimeoutManager"] for id_, each in timeouts.items()}
        exact = {  # fields in their order
            id_: json.dumps([each.content, each.metadata]) for id_, each in timeouts.items()
        }
        return Sight(exact=exact, owners=owners, evidence=evidence)


class Raven35Site(RavenSite):
    """The strict server as 3.5."""

    needs: ClassVar[str | None] = "strict_raven_35"


class Raven4Site(RavenSite):
    """The strict server as 4 and later."""

    needs: ClassVar[str | None] = "strict_raven_4"


class RealRavenSite(RavenSite):
    """A real server."""

    needs: ClassVar[str | None] = "real_raven_database"
    server_version: ClassVar[str]


REAL_SITES: Final[Mapping[str, type[RealRavenSite]]] = {
    version: type(
        f"Raven{version.replace('.', '')}Site", (RealRavenSite,), {"server_version": version}
    )
    for version in VERSIONS
}
"""A kind of site for each version that is to be had."""


def _headers(text: str | None) -> Any:
    """Return the object that NServiceBus would have stored; text that is no JSON stays text."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
