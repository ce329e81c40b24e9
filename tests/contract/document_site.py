"""A document store, and a ledger in a database of its own, as one process sees them.

The store is filled and read by clients of the tests' own, so that a mistake in the adapter cannot
hide behind the same mistake here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Self

from migrator.database.engine import open_engine
from migrator.ledger.work import StoreEndpoint
from migrator.recall.restore import DocumentRecalls
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import DocumentStoreView
from migrator.verify.stores import DocumentAudit
from tests.contract.any_site import AnySite, LegacyRow, due_in, timeout_id

NEIGHBOUR = LegacyRow(id=timeout_id(2**90), due=due_in(timedelta(hours=1)))
"""A timeout of another endpoint, in the same table or collection."""


class Stopped(BaseException):
    """The process ended at a step."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A whole store at one moment."""

    exact: Mapping[str, object]
    """All there is of each timeout by its id, to the last digit; of some there may be parts."""
    owners: Mapping[str, str]
    """Whose each whole timeout is, by its id."""
    evidence: Sequence[str]
    """What migrator keeps there, by name."""


@dataclass
class DocumentSite(AnySite):
    """A document store beside a ledger."""

    legacy: Any = field(kw_only=True)
    """The store as an endpoint uses it."""
    stop_at: str = ""
    """The step at which the process ends."""
    written: dict[str, tuple[LegacyRow, object]] = field(default_factory=dict)
    """What tests have stored, by id, and how it looked then; all sites of a test share it."""

    claims: DocumentClaims = field(init=False)
    documents: DocumentStore = field(init=False)

    takes_two_steps: ClassVar[bool] = True

    def _open(self) -> None:
        self.documents = self.open_documents()
        self.document_ledger = DocumentLedger(self.engine, self.tables)
        self.store = DocumentStoreView(
            self.engine, self.tables, self.document_ledger, self.documents
        )
        self.claims = self._new_claims()

    def _new_claims(self) -> DocumentClaims:
        return DocumentClaims(
            self.document_ledger, self.documents, ledger_id=self.ledger_id, fault=self.fault
        )

    def adopt(self) -> None:
        """Give the ledger another id, and claim under it."""
        super().adopt()
        self.claims = self._new_claims()

    def fault(self, step: str) -> None:
        """End here, if this is where it shall end."""
        if step == self.stop_at:
            raise Stopped(step)

    # ── what each kind has to say ───────────────────────────────────────────────────────────

    @abstractmethod
    def open_documents(self) -> DocumentStore:
        """Return the adapter, which reads small pages."""

    @abstractmethod
    def put(self, row: LegacyRow, owner: str) -> None:
        """Store a row as the persistence of *owner* does."""

    @abstractmethod
    def put_flawed(self, row: LegacyRow) -> None:
        """Store a row whose body nobody can read."""

    @abstractmethod
    def look(self) -> Sight:
        """Return all there is in the store."""

    # ── the same of all kinds ───────────────────────────────────────────────────────────────

    @property
    def manager(self) -> DocumentManager:
        """The endpoint's timeout manager."""
        return DocumentManager(self.legacy, self.endpoint_name)

    @property
    def source(self) -> str:
        """Where the endpoint's timeouts are."""
        return self.documents.source_of(self.endpoint_name)

    @property
    def endpoint(self) -> StoreEndpoint:
        """The endpoint, also when it has no timeout."""
        return StoreEndpoint(name=self.endpoint_name, source=self.source)  # type: ignore[arg-type]

    def create(self, rows: Sequence[LegacyRow] = ()) -> StoreEndpoint:
        """Store *rows* of the endpoint, and one of another; return the endpoint."""
        if NEIGHBOUR.id not in self.written:
            self.put(NEIGHBOUR, "Other.Endpoint")
        self.insert(rows)
        return self.endpoint

    def insert(self, rows: Sequence[LegacyRow]) -> None:
        """Store rows of the endpoint as they are, however odd."""
        for row in rows:
            self.put(row, self.endpoint_name)
        now = self.look().exact
        self.written |= {row.id: (row, now[row.id]) for row in rows}
        self.written.setdefault(NEIGHBOUR.id, (NEIGHBOUR, now.get(NEIGHBOUR.id)))

    def legacy_rows(self) -> list[LegacyRow]:
        """Return the endpoint's timeouts, by id: as they were stored, if nothing is different."""
        now = self.look()
        mine = sorted(id_ for id_, owner in now.owners.items() if owner == self.endpoint_name)
        return [self._seen(id_, now.exact[id_]) for id_ in mine]

    def remains(self) -> list[str]:
        """Return what is there beside whole timeouts."""
        now = self.look()
        parts = [id_ for id_ in now.exact if id_ not in now.owners]
        return sorted([*parts, *now.evidence])

    def _seen(self, id_: str, now: object) -> LegacyRow:
        row, before = self.written[id_]
        if now == before:
            return row
        return LegacyRow(id=id_, headers=f"not as it was: {now!r}", destination=f"was: {before!r}")

    def recalls(self) -> DocumentRecalls:
        """Return what restores handed-over timeouts."""
        return DocumentRecalls(
            self.engine, self.tables, self.document_ledger, self.claims, fault=self.fault
        )

    def audit(self) -> DocumentAudit:
        """Return what reads the ledger and lists the store."""
        return DocumentAudit(self.engine, self.tables, self.documents)

    def second(self, endpoint_name: str | None = None) -> Self:
        """Return the same as another process would open it; ``close`` it."""
        return type(self)(
            engine=open_engine(self.engine.url),
            endpoint_name=endpoint_name or self.endpoint_name,
            legacy=self.legacy,
            written=self.written,
        )

    def close(self) -> None:
        """Close what was opened."""
        self.documents.close()
        super().close()


@dataclass(frozen=True)
class DocumentManager:
    """Implements ``TimeoutManager`` by what the store's client of the tests does."""

    legacy: Any
    owner: str

    def due(self) -> Sequence[str]:
        """Return the ids of all timeouts that it knows of, soonest first."""
        found: Sequence[str] = self.legacy.due(self.owner)
        return found

    def peek(self, row_id: str) -> bool:
        """Return whether it would send this timeout now."""
        return bool(self.legacy.peek(row_id))

    def remove(self, row_id: str) -> bool:
        """Remove a timeout that is about to be sent; False: it is gone, and is not sent."""
        return bool(self.legacy.try_remove(row_id))

    def remove_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga that has ended; return how many there were."""
        return len(self.legacy.remove_by_saga(saga_id))
