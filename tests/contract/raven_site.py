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
from tests.support.ravendb_client import LegacyDatabase

PREFIX = "0"
"""How all ids of these tests begin: GUIDs, which the application chose; ids as NServiceBus makes
them are in ``tests/integration/test_ravendb_server``."""


@dataclass
class RavenSite(DocumentSite):
    """A database of RavenDB beside a ledger."""

    legacy: LegacyDatabase = field(kw_only=True)

    due_digits: ClassVar[int] = 7
    first_time: ClassVar[str] = "0001-01-01 00:00:00.0000000"
    last_time: ClassVar[str] = "9999-12-31 23:59:59.9999999"

    def open_documents(self) -> RavenStore:
        """Return the adapter."""
        server = ServerSettings(url=self.legacy.url, database=self.legacy.database)
        return RavenStore(RavenOptions(server=server, prefixes=[PREFIX]))

    @property
    def unusable_times(self) -> Sequence[str | None]:
        """Due times that a timeout may have, and at which no timeout manager would send it."""
        return (None, "soon")

    @property
    def manager(self) -> RavenManager:
        """The endpoint's timeout manager."""
        return RavenManager(self.legacy, self.endpoint_name)

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
        self.legacy.add({row.id: content | more})

    @contextmanager
    def vendor_run(self) -> Iterator[None]:
        """Leave the tool's own document, and take it away as the tool does."""
        state = "TimeoutMigrationTool/State"
        self.legacy.add({state: {"Endpoint": self.endpoint_name, "Status": "StoragePrepared"}})
        yield
        self.legacy.remove([state])

    def put_flawed(self, row: LegacyRow) -> None:
        """Store a row whose body is no Base64."""
        self.put(row, self.endpoint_name, State="no base64!")

    def look(self) -> Sight:
        """Return all documents."""
        found = self.legacy.contents()
        evidence = [id_ for id_ in found if id_.startswith("migrator/")]
        timeouts = {id_: each for id_, each in found.items() if id_.startswith(PREFIX)}
        owners = {id_: each["OwningTimeoutManager"] for id_, each in timeouts.items()}
        exact = {id_: json.dumps(each) for id_, each in timeouts.items()}  # fields in their order
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


class RavenManager:
    """Implements ``TimeoutManager``."""

    def __init__(self, legacy: LegacyDatabase, owner: str) -> None:
        self._legacy = legacy
        self._owner = owner

    def due(self) -> Sequence[str]:
        """Return the ids of all timeouts that it knows of, soonest first."""
        found = self._legacy.contents(PREFIX)
        mine = [id_ for id_, each in found.items() if each["OwningTimeoutManager"] == self._owner]
        return sorted(mine, key=lambda id_: str(found[id_]["Time"]))

    def peek(self, row_id: str) -> bool:
        """Return whether it would send this timeout now."""
        return self._legacy.peek(row_id)

    def remove(self, row_id: str) -> bool:
        """Remove a timeout that is about to be sent; False: it is gone, and is not sent."""
        return self._legacy.try_remove(row_id)

    def remove_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga that has ended; return how many there were."""
        return len(self._legacy.remove_by_saga(saga_id))


def _headers(text: str | None) -> Any:
    """Return the object that NServiceBus would have stored; text that is no JSON stays text."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
