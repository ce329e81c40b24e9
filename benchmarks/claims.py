"""How fast timeouts are claimed, and whether the last claims cost more than the first.

    python benchmarks/claims.py --rows 1000000
    python benchmarks/claims.py --rows 1000000 --server mariadb
    python benchmarks/claims.py --rows 20000 --server azurite

Starts a private server with durable writes, fills a legacy table as the vendor makes it (in
PostgreSQL without statistics, like a table nobody analysed; MariaDB makes its own), and claims
all of it in batches. With azurite, Microsoft's emulator of Azure Storage has the timeouts and
PostgreSQL the ledger; of the real service that only tells how many requests there are.
Prints one line per tenth of the rows; the last column compares the median claim with that of the
first tenth.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.append(str(Path(__file__).resolve().parent.parent))

from sqlalchemy import text

from dev.servers import AzuriteServer, MariadbServer, PostgresServer
from migrator.database.engine import open_engine, writing
from migrator.domain.partitions import parse_scope
from migrator.domain.states import Mode
from migrator.domain.timeouts import Lane
from migrator.ledger.identity import check_identity
from migrator.ledger.leases import SqlLeases
from migrator.ledger.migrations import upgrade
from migrator.ledger.names import names_for
from migrator.ledger.runs import SqlRuns
from migrator.ledger.tables import build_tables
from migrator.ports import ClaimRequest, Claims, Cursor, Store
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.store import AzureStore
from migrator.stores.claims import SqlClaims
from migrator.stores.documents.books import DocumentBooks
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.seeding import Invention, create_table, insert_rows, invent
from migrator.stores.sql_persistence import SqlOptions, SqlStore

ENDPOINT = "Sales.Orders"
START = datetime(2030, 1, 1, tzinfo=UTC)
SPAN = timedelta(days=300)


class Bench:
    """A database full of timeouts."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self.tables = build_tables(names_for(self.engine))
        upgrade(self.engine, self.tables)
        self.tables_of_rows = SqlStore(self.engine, self.tables, SqlOptions())
        self.store: Store = self.tables_of_rows
        self.claims: Claims = SqlClaims(self.engine, self.tables, self.tables_of_rows)

    def seed(self, rows: int, body_bytes: int) -> None:
        """Fill the legacy table; nobody analyses it."""
        blank = self.tables_of_rows.blank(self.tables_of_rows.source_of(ENDPOINT))
        create_table(self.engine, blank)
        if self.engine.dialect.name == "postgresql":
            without = 'ALTER TABLE "Sales_Orders_TimeoutData" SET (autovacuum_enabled = false)'
            with writing(self.engine) as connection:
                connection.execute(text(without))
        insert_rows(self.engine, blank, invent(_what(rows, body_bytes)))

    def claim_all(self, batch_rows: int) -> Iterator[tuple[int, float]]:
        """Yield the size and the seconds of each claim, in order."""
        ledger_id = check_identity(self.engine, self.tables)
        lease = SqlLeases(self.engine, self.tables, ledger_id).acquire(
            Lane(0), "benchmark", timedelta(hours=1)
        )
        assert lease is not None  # noqa: S101 - the ledger is ours alone
        endpoint = self.store.find(ENDPOINT)
        run = SqlRuns(self.engine, self.tables, actor="benchmark", version="0").begin(endpoint, {})
        cursor: Cursor | None = None
        while True:
            request = ClaimRequest(
                run=run,
                endpoint=endpoint,
                lease=lease,
                mode=Mode.STAGED,
                due_after=START - timedelta(days=1),
                due_until=START + SPAN,
                max_rows=batch_rows,
                max_bytes=32 * 1024 * 1024,
                cursor=cursor,
            )
            begun = time.perf_counter()
            claim = self.claims.claim(request)
            if claim is None:
                return
            yield claim.batch.size, time.perf_counter() - begun
            cursor = claim.cursor

    def sizes(self) -> Sequence[tuple[str, str]]:
        """Return the sizes of the ledger's largest table and of its indexes."""
        query = text(
            "SELECT table_name, concat(round((data_length + index_length) / 1048576), ' MB') "
            "FROM information_schema.tables WHERE table_name = 'migrator_timeout'"
            if self.engine.dialect.name == "mysql"
            else "SELECT relname, pg_size_pretty(pg_relation_size(oid)) FROM pg_class "
            "WHERE relname LIKE 'timeout%' AND relkind IN ('r', 'i') ORDER BY relname"
        )
        with self.engine.connect() as connection:
            return [(row[0], row[1]) for row in connection.execute(query)]


class AzureBench(Bench):
    """An account full of timeouts, and a ledger beside it."""

    def __init__(self, account_url: str, ledger_url: str) -> None:
        super().__init__(ledger_url)
        settings = AccountSettings(
            connection_string=account_url,
            table="TimeoutDataTableName",
            container="timeoutstate",
            requests=32,
        )
        self.documents = AzureStore(Account(settings), parse_scope("yyyyMMddHH"))
        books = DocumentBooks(self.engine, self.tables)
        self.store = DocumentStoreView(self.engine, self.tables, books, self.documents)
        self.claims = DocumentClaims(
            books, self.documents, ledger_id=lambda: check_identity(self.engine, self.tables)
        )

    def seed(self, rows: int, body_bytes: int) -> None:
        """Fill table and container."""
        self.documents.seed(ENDPOINT, invent(_what(rows, body_bytes)))


def _what(rows: int, body_bytes: int) -> Invention:
    return Invention(
        endpoint=ENDPOINT,
        count=rows,
        due_from=START,
        due_until=START + SPAN,
        destinations=(ENDPOINT, "Billing"),
        body_bytes=body_bytes,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-rows", type=int, default=1000)
    parser.add_argument("--body-bytes", type=int, default=500)
    parser.add_argument(
        "--server", choices=["postgresql", "mariadb", "azurite"], default="postgresql"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        server: PostgresServer | MariadbServer
        server = _mariadb() if options.server == "mariadb" else _postgresql()
        stack.enter_context(server)
        bench = Bench(server.url(server.create_database()))
        if options.server == "azurite":
            azurite = stack.enter_context(AzuriteServer())
            bench = AzureBench(azurite.url(), server.url(server.create_database()))
        begun = time.perf_counter()
        bench.seed(options.rows, options.body_bytes)
        print(f"seeded {options.rows} rows in {time.perf_counter() - begun:.0f} s")
        _print_claims(list(bench.claim_all(options.batch_rows)))
        for name, size in bench.sizes():
            print(f"{name:16} {size}")
        bench.engine.dispose()


def _postgresql() -> PostgresServer:
    return PostgresServer(fsync=True, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"})


def _mariadb() -> MariadbServer:
    settings = {
        "innodb_buffer_pool_size": "512M",
        "innodb_log_file_size": "1G",
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_doublewrite": "ON",
    }
    return MariadbServer(settings=settings)


def _print_claims(claims: Sequence[tuple[int, float]]) -> None:
    tenth = max(len(claims) // 10, 1)
    print(f"{'rows':>10} {'rows/s':>8} {'median ms':>10} {'max ms':>8} {'x first':>8}")
    first = statistics.median(seconds for _, seconds in claims[:tenth])
    done = 0
    for start in range(0, len(claims), tenth):
        part = claims[start : start + tenth]
        rows, seconds = sum(size for size, _ in part), [s for _, s in part]
        done += rows
        median = statistics.median(seconds)
        print(
            f"{done:>10} {rows / sum(seconds):>8.0f} {median * 1000:>10.1f} "
            f"{max(seconds) * 1000:>8.1f} {median / first:>8.2f}"
        )


if __name__ == "__main__":
    main()
