"""What a verification asks the ledger; nothing is changed.

Rules of this file:

* each answer is true at its own moment, as a daemon may work meanwhile; what is compared within
  one answer was read at one moment, and no transaction is open when a call returns;
* rows are counted one by one and hashed by the database; rows whose batch is gone are looked at
  like all others, and are doubtful: their outcome is unknown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Engine,
    RowMapping,
    Select,
    and_,
    case,
    func,
    literal_column,
    or_,
    select,
    true,
    union_all,
)

from migrator.database.engine import reading
from migrator.database.failures import retrying
from migrator.database.portable import among, flag, pair_in
from migrator.errors import LedgerError
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import EndpointName, content_hash
from migrator.stores.sql.dialects import Dialect, dialect_for
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import id_text
from migrator.verify.report import (
    BatchGap,
    DestinationBalance,
    EndpointBalance,
    EvidenceRecord,
    RowKey,
)

T = TypeVar("T")

_CONTENTS: Final = 50
"""Rows with headers and body that are read at a time, where the database cannot hash them."""
_WITHOUT_BATCH: Final = BatchState.DOUBTFUL
"""State of a row whose batch is gone."""


def _is_intact(found: RowMapping | dict[str, Any]) -> bool | None:
    """Return whether the content of a row still has its hash.

    None: the database cannot tell; ``content_of`` is to be read.
    """
    if "is_intact" in found:
        is_same = found["is_intact"]
        return None if is_same is None else bool(is_same)
    return bool(found["content_hash"] == content_hash(found["headers"], found["body"]))


class AuditStatements:
    """Builds the queries for one dialect."""

    def __init__(self, ledger: LedgerTables, dialect: Dialect) -> None:
        self._ledger = ledger
        self._dialect = dialect
        row, batch = ledger.timeout, ledger.batch
        self.rows_and_batches = row.outerjoin(batch, batch.c.id == row.c.batch_id)
        """Also rows without a batch."""
        self.state = func.coalesce(
            row.c.state, batch.c.state, literal_column(f"'{_WITHOUT_BATCH}'")
        )
        """The row's own state, else its batch's."""
        self.is_handed_over = and_(row.c.state.is_(None), batch.c.state == BatchState.HANDED_OVER)
        """Whether a row is with the broker, and was not taken back."""
        self.is_quarantined = row.c.state == RowState.QUARANTINED

    def gaps(self) -> CompoundSelect[Any]:
        """Return every batch with other rows than its size less what was purged of it.

        Rows whose batch is gone are too many for a batch of which nothing is known.
        """
        row, batch = self._ledger.timeout, self._ledger.batch
        nothing: ColumnElement[int] = literal_column("0")
        kept = (
            select(row.c.batch_id, func.count().label("rows")).group_by(row.c.batch_id).cte("kept")
        )
        endpoint = (  # not in ``kept``: counting alone needs nothing but an index
            select(func.min(row.c.endpoint))
            .where(row.c.batch_id == kept.c.batch_id)
            .correlate(kept)
            .scalar_subquery()
        )
        rows = func.coalesce(kept.c.rows, 0)
        of_batches = (
            select(
                batch.c.id.label("batch"),
                batch.c.endpoint,
                batch.c.state,
                batch.c.size,
                batch.c.purged,
                rows.label("rows"),
            )
            .select_from(batch.outerjoin(kept, kept.c.batch_id == batch.c.id))
            .where(batch.c.size - batch.c.purged != rows)
        )
        without_batch = (
            select(
                kept.c.batch_id,
                endpoint,
                literal_column(f"'{_WITHOUT_BATCH}'"),
                nothing,
                nothing,
                kept.c.rows,
            )
            .select_from(kept.outerjoin(batch, batch.c.id == kept.c.batch_id))
            .where(batch.c.id.is_(None))
        )
        return union_all(of_batches, without_batch)

    def also_in(
        self, legacy: LegacyTable, endpoints: Collection[str], *, limit: int
    ) -> Select[Any]:
        """Return rows that are in *legacy* and open here, and as ``total`` how many they are.

        Only rows of *endpoints* count; empty: of all.

        Each row of the legacy table is looked up by a correlated scalar subquery on purpose: a
        planner without statistics may compare every row of the one with every row of the other.
        """
        row, known = self._ledger.timeout, self._ledger.timeout.alias("known")
        open_id = (
            select(known.c.id)
            .where(
                known.c.source == legacy.source,
                self._ledger.is_open(known, id_text(legacy)),
                among(known.c.endpoint, endpoints) if endpoints else true(),
            )
            .limit(1)
            .correlate(legacy.table)
            .scalar_subquery()
        )
        # sorted by a column, for who knows which database sorts by a subquery
        found = (
            select(open_id.label("id"))
            .select_from(legacy.table)
            .where(*legacy.is_owned)
            .subquery("found")
        )
        both = (
            select(found.c.id, func.count().over().label("total"))
            .where(found.c.id.is_not(None))
            .order_by(found.c.id)
            .limit(limit)
            .subquery("both")
        )
        audited = self.rows().add_columns(both.c.total)
        return audited.join(both, both.c.id == row.c.id).order_by(row.c.id)

    def rows(self) -> Select[Any]:
        """Return a query for every row; its columns are fields of ``EvidenceRecord``."""
        row, batch = self._ledger.timeout.c, self._ledger.batch.c
        return select(
            row.id,
            row.batch_id.label("batch"),
            row.row_index,
            row.endpoint,
            row.source,
            row.store_id.label("timeout_id"),
            self._ledger.shown("destination"),
            row.due.label("due_at"),
            self.state.label("state"),
            case((self.is_quarantined, row.reason)).label("reason"),
            row.content_hash,
            batch.claimed_at,
            case((self.is_handed_over, batch.handed_over_at)).label("handed_over_at"),
        ).select_from(self.rows_and_batches)

    def with_keys(self, keys: Collection[tuple[int, int]]) -> Select[Any]:
        """Return rows by batch and index, with the hashes of their bodies."""
        row = self._ledger.timeout
        is_wanted = pair_in(row.c.batch_id, row.c.row_index, keys, dialect=self._dialect.name)
        body_hash = self._dialect.body_hash(row.c.body).label("body_hash")
        return self.rows().add_columns(body_hash).where(is_wanted)

    def whole_rows(self, endpoints: Collection[str] = ()) -> Select[Any]:
        """Return a query for every row with the hash of its body, and what ``_is_intact`` asks.

        Rows of other *endpoints* count as intact, where the database hashes; empty: there are none.
        """
        row, content = self._ledger.timeout.c, self._content()
        body_hash = self._dialect.body_hash(row.body)
        if endpoints and len(content) == 1:
            is_meant = among(row.endpoint, endpoints)
            content = [case((is_meant, content[0]), else_=literal_column("1")).label("is_intact")]
            body_hash = case((is_meant, body_hash))
        return self.rows().add_columns(body_hash.label("body_hash"), *content)

    def intact(self, ids: Collection[int]) -> Select[Any]:
        """Return rows by their own id, each with what ``_is_intact`` asks of it."""
        row, content = self._ledger.timeout, self._content()
        columns = content if len(content) == 1 else [row.c.content_hash, *content]
        return select(row.c.id, *columns).where(row.c.id.in_(sorted(ids)))

    def _content(self) -> list[ColumnElement[Any]]:
        row = self._ledger.timeout.c
        content = self._dialect.content_hash(row.headers, row.body)
        if content is None:
            return [row.headers, row.body]
        is_same = row.content_hash == content
        return [(flag(is_same) if self._dialect.hashes_all else is_same).label("is_intact")]

    def content_of(self, id_: int) -> Sequence[Select[Any]]:
        """Return what reads a row's hash, headers and body: one after the other, as it is large."""
        row = self._ledger.timeout
        parts = (row.c.content_hash, row.c.headers, row.c.body)
        return [select(part).where(row.c.id == id_) for part in parts]


class LedgerAudit(ABC):
    """Reads the ledger; what the store has of it is a subclass's.

    Raises, each of its methods:
        StoreUnavailable, LedgerError: They cannot be read now.
    """

    def __init__(self, engine: Engine, ledger: LedgerTables) -> None:
        self._dialect = dialect_for(engine.dialect.name)
        self._engine = self._dialect.read_only(engine)
        self._ledger = ledger
        self._queries = AuditStatements(ledger, self._dialect)
        self.unread: dict[str, str] = {}
        """Sources of which rows could not be read, and why: what is in them was not compared."""

    # ── balances ────────────────────────────────────────────────────────────────────────────

    def balances(self) -> Sequence[EndpointBalance]:
        """Return every endpoint with batches in the ledger, sorted; all at one moment.

        Rows are counted one by one, not by what batches say of themselves.
        """
        row, batch, state = self._ledger.timeout.c, self._ledger.batch.c, self._queries.state
        claiming = select(
            batch.endpoint, batch.source, func.sum(batch.size), func.sum(batch.purged)
        ).group_by(batch.endpoint, batch.source)
        counting = (
            select(row.endpoint, row.source, state, func.count())
            .select_from(self._queries.rows_and_batches)
            .group_by(row.endpoint, row.source, state)
        )

        def read(connection: Connection) -> list[EndpointBalance]:
            claimed = {(e, s): (size, gone) for e, s, size, gone in connection.execute(claiming)}
            rows = defaultdict[tuple[str, str], dict[str, int]](dict)
            for endpoint, source, state, count in connection.execute(counting):
                rows[endpoint, source][state] = count
            keys = sorted({*claimed, *rows})
            in_store = {source: self._in_store(connection, source) for _, source in keys}
            balances = []
            for endpoint, source in keys:
                size, purged = claimed.get((endpoint, source), (0, 0))
                balances.append(
                    EndpointBalance(
                        endpoint=EndpointName(endpoint),
                        source=source,
                        in_store=in_store[source],
                        claimed=int(size),
                        purged=int(purged),
                        rows=rows.get((endpoint, source), {}),
                    )
                )
            return balances

        return self._read("adding up the ledger", read, is_long=True)

    def destinations(self, *, now: datetime) -> Sequence[DestinationBalance]:
        """Return what was handed over, or set aside, by endpoint and destination, sorted."""
        row, queries = self._ledger.timeout.c, self._queries
        destination = self._ledger.shown("destination")

        def count(which: ColumnElement[bool]) -> ColumnElement[int]:
            return func.count(case((which, 1)))

        query = (
            select(
                row.endpoint,
                destination,
                count(queries.is_handed_over & (row.due > now)).label("waiting"),
                count(queries.is_handed_over & (row.due <= now)).label("left"),
                count(queries.is_quarantined).label("quarantined"),
            )
            .select_from(queries.rows_and_batches)
            .where(or_(queries.is_handed_over, queries.is_quarantined))
            .group_by(row.endpoint, destination)
        )
        found = [DestinationBalance(**each) for each in self._rows(query, "counting destinations")]
        return sorted(found, key=lambda each: (each.endpoint, each.destination or ""))

    def gaps(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[BatchGap]]:
        """Return how many batches have other rows than they should, and the first of them.

        A batch should have as many rows as its size less what was purged of it.

        Args:
            endpoints: Whose; empty: of all.
            at_most: Bounds how many are returned, not how many are counted.
        """
        gap = self._queries.gaps().subquery("gap")
        query = select(gap, func.count().over().label("total")).order_by(gap.c.batch)
        if endpoints:
            query = query.where(among(gap.c.endpoint, endpoints))
        query = query.limit(max(at_most, 1))
        total, found = counted(self._rows(query, "counting the rows of every batch"))
        return total, [BatchGap(**each) for each in found[:at_most]]

    # ── rows ────────────────────────────────────────────────────────────────────────────────

    def rows(
        self, *, after: int, at_most: int, endpoints: Collection[EndpointName] = ()
    ) -> Sequence[EvidenceRecord]:
        """Return the next rows of the ledger, ascending by their own id; empty at the end.

        The database hashes them; see ``intact``.

        Args:
            after: Exclusive; 0: from the first.
            at_most: Bounds the answer, and how long the database is kept busy.
            endpoints: Rows of others need not be hashed; empty: there are no others.
        """
        row = self._ledger.timeout
        query = self._queries.whole_rows(endpoints).where(row.c.id > after)
        return self._whole(query.order_by(row.c.id).limit(at_most))

    def rows_called(
        self, ids: Collection[int], *, endpoints: Collection[EndpointName] = ()
    ) -> Sequence[EvidenceRecord]:
        """Return rows by their own id; those that are gone are left out."""
        row = self._ledger.timeout
        query = self._queries.whole_rows(endpoints).where(row.c.id.in_(sorted(ids)))
        return self._whole(query.order_by(row.c.id))

    def claimed_since(self, since: datetime, *, after: int, at_most: int) -> Sequence[int]:
        """Return the next rows of batches that were claimed then or later, as ``rows`` does.

        Their own ids, without anything else.
        """
        row, batch = self._ledger.timeout, self._ledger.batch
        recent = select(batch.c.id).where(batch.c.claimed_at >= since)
        query = (
            select(row.c.id)
            .where(row.c.id > after, row.c.batch_id.in_(recent))
            .order_by(row.c.id)
            .limit(at_most)
        )
        return self._read(
            "reading the ledger's rows",
            lambda connection: connection.scalars(query).all(),
            is_long=True,
        )

    def _whole(self, query: Select[Any]) -> Sequence[EvidenceRecord]:
        """Return rows with whether they are intact; contents come a few at a time, if at all."""
        has_content = "headers" in query.selected_columns
        options = {"yield_per": _CONTENTS} if has_content else {}

        def read(connection: Connection) -> list[dict[str, Any]]:
            found = connection.execute(query, execution_options=options)
            names, rows = tuple(found.keys()), list[dict[str, Any]]()
            for row in found:
                told = dict(zip(names, row, strict=True))
                told["is_intact"] = _is_intact(told)
                if has_content:
                    del told["headers"], told["body"]
                rows.append(told)
            return rows

        found = self._read("reading the ledger's rows", read)
        for told in found:
            if told["is_intact"] is None:
                told["is_intact"] = self._has_its_hash(told["id"])
        return [EvidenceRecord(**told) for told in found]

    def intact(self, ids: Collection[int]) -> Mapping[int, bool]:
        """Return of each row, by its own id, whether its content still has its hash.

        The database computes it. Rows that are gone are left out.
        """
        if not ids:
            return {}
        query = self._queries.intact(ids)

        def read(connection: Connection) -> dict[int, bool | None]:
            found = connection.execute(query, execution_options={"yield_per": _CONTENTS})
            return {row["id"]: _is_intact(row) for row in found.mappings()}

        told = self._read("hashing the ledger's rows", read)
        return {
            id_: self._has_its_hash(id_) if is_same is None else is_same
            for id_, is_same in told.items()
        }

    def _has_its_hash(self, id_: int) -> bool:
        """Return whether a row is as it was claimed; it is too large for the database to hash."""

        def read(connection: Connection) -> bool:
            parts = [connection.scalar(query) for query in self._queries.content_of(id_)]
            return bool(parts[0] == content_hash(*parts[1:]))

        return self._read(f"reading the large row {id_} of the ledger", read)

    def known(self, rows: Collection[RowKey]) -> Mapping[RowKey, EvidenceRecord]:
        """Return those of *rows* that the ledger has, in whatever state."""
        if not rows:
            return {}
        query = self._queries.with_keys(rows)

        def read(connection: Connection) -> Sequence[RowMapping]:
            return connection.execute(query).mappings().all()

        found = self._read("looking for timeouts in the ledger", read)
        return {(row["batch"], row["row_index"]): EvidenceRecord(**row) for row in found}

    # ── the store ───────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def in_both_places(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[EvidenceRecord]]:
        """Return how many timeouts are in the store and open in the ledger, and the first.

        Arguments are those of ``gaps``.
        """

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _sources(self, endpoints: Collection[str]) -> Sequence[str]:
        batch = self._ledger.batch
        query = select(batch.c.source).distinct()
        if endpoints:
            query = query.where(among(batch.c.endpoint, endpoints))
        found = self._rows(query, "looking for stores in the ledger", is_long=False)
        return [row["source"] for row in found]

    def _in_store(self, connection: Connection, source: str) -> int | None:
        """Return how many timeouts *source* has at the moment of *connection*; None: unknown."""
        del connection, source
        return None

    def _records(
        self, query: Select[Any], doing: str, *, is_long: bool = False
    ) -> list[EvidenceRecord]:
        return [EvidenceRecord(**each) for each in self._rows(query, doing, is_long=is_long)]

    def _rows(
        self, query: Select[Any], doing: str, *, is_long: bool = True
    ) -> Sequence[RowMapping]:
        def read(connection: Connection) -> Sequence[RowMapping]:
            return connection.execute(query).mappings().all()

        return self._read(doing, read, is_long=is_long)

    def _read(self, doing: str, read: Callable[[Connection], T], *, is_long: bool = False) -> T:
        def work() -> T:
            with reading(self._engine, LedgerError, doing=doing) as connection:
                if is_long:
                    self._dialect.allow_long(connection)
                return read(connection)

        return work() if is_long else retrying(work)


def counted(rows: Iterable[RowMapping]) -> tuple[int, Sequence[dict[str, Any]]]:
    """Return how many there are of *rows*, the first of them, and those without that."""
    found = [dict(each) for each in rows]
    return max((each.pop("total") for each in found), default=0), found
