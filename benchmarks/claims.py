"""How fast timeouts are claimed, and whether the last claims cost more than the first.

    python benchmarks/claims.py --rows 1000000
    python benchmarks/claims.py --rows 1000000 --server mariadb
    python benchmarks/claims.py --rows 20000 --server azurite
    python benchmarks/claims.py --rows 20000 --server ravendb

Starts a private server with durable writes, fills a legacy table as the vendor makes it (in
PostgreSQL without statistics, like a table nobody analysed; MariaDB makes its own), and claims
all of it in batches. With azurite, Microsoft's emulator of Azure Storage has the timeouts and
PostgreSQL the ledger; of the real service that only tells how many requests there are, which are
counted by verb and by what was asked for. Bodies and time entries go many at a time where timeouts
are due in the same hour: --days tells over how many days they are spread.
With ravendb, RavenDB 6.2 has the timeouts; beside its claims stands how fast the same documents
are read in pages and removed in batches under their versions, with no ledger.
Prints one line per tenth of the rows; the last column compares the median claim with that of the
first tenth.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.append(str(Path(__file__).resolve().parent.parent))

from sqlalchemy import text

from dev.servers import AzuriteServer, MariadbServer, PostgresServer, RavenServer
from migrator.database.engine import open_engine, writing
from migrator.ledger.batches import SqlRuns
from migrator.ledger.identity import check_identity
from migrator.ledger.leases import SqlLeases
from migrator.ledger.migrations import upgrade
from migrator.ledger.states import Mode
from migrator.ledger.tables import build_tables, names_for
from migrator.nservicebus.timeouts import Lane
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.ports import Claims, Store
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from migrator.stores.requests import ClaimRequest, Cursor
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.seeding import SeedRow, SeedSpec, create_table, insert_rows, invent
from migrator.stores.sql.sql_persistence import SqlOptions, SqlStore

ENDPOINT = "Sales.Orders"
START = datetime(2030, 1, 1, tzinfo=UTC)
DAYS = 300.0


class Bench:
    """A database full of timeouts."""

    def __init__(self, url: str, span: timedelta) -> None:
        self.span = span
        self.engine = open_engine(url)
        self.tables = build_tables(names_for(self.engine))
        upgrade(self.engine, self.tables)
        self.tables_of_rows = SqlStore(self.engine, self.tables, SqlOptions())
        self.store: Store = self.tables_of_rows
        self.claims: Claims = SqlClaims(self.engine, self.tables, self.tables_of_rows.legacy_table)

    def seed(self, rows: int, body_bytes: int) -> None:
        """Fill the legacy table; nobody analyses it."""
        blank = self.tables_of_rows.blank(self.tables_of_rows.source_of(ENDPOINT))
        create_table(self.engine, blank)
        if self.engine.dialect.name == "postgresql":
            without = 'ALTER TABLE "Sales_Orders_TimeoutData" SET (autovacuum_enabled = false)'
            with writing(self.engine) as connection:
                connection.execute(text(without))
        insert_rows(self.engine, blank, invent(_what(rows, body_bytes, self.span)))

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
                due_until=START + self.span,
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

    def close(self) -> None:
        """Disconnect."""
        self.engine.dispose()

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

    def __init__(self, account_url: str, ledger_url: str, span: timedelta) -> None:
        super().__init__(ledger_url, span)
        self.requests = count_requests()
        settings = AccountSettings(
            connection_string=account_url,
            table="TimeoutDataTableName",
            container="timeoutstate",
            requests=32,
        )
        self.documents = AzureStore(Account(settings), parse_scope("yyyyMMddHH"))
        ledger = DocumentLedger(self.engine, self.tables)
        self.store = DocumentStoreView(self.engine, self.tables, ledger, self.documents)
        self.claims = DocumentClaims(
            ledger, self.documents, ledger_id=check_identity(self.engine, self.tables)
        )

    def seed(self, rows: int, body_bytes: int) -> None:
        """Fill table and container."""
        self.documents.seed(ENDPOINT, invent(_what(rows, body_bytes, self.span)))
        self.requests.clear()

    def close(self) -> None:
        """Disconnect."""
        super().close()
        self.documents.close()

    def tell_requests(self, rows: int) -> None:
        """Print how many requests the claims of *rows* timeouts took."""
        print(f"{self.requests.total() / max(rows, 1):.2f} requests for each timeout")
        for what, count in self.requests.most_common():
            print(f"{count:>10} {what}")


def count_requests() -> Counter[str]:
    """Return what counts the requests of this process to an account from now on."""
    found, send = Counter[str](), HTTPConnection.putrequest

    def counting(connection: Any, method: str, url: str, *args: Any, **options: Any) -> None:
        parts = urlsplit(url)
        if "$batch" in parts.path:
            what = "transaction"
        elif "comp=batch" in parts.query:
            what = "batch of blobs"
        elif parts.path.endswith("()"):
            what = "listing"
        else:
            what = "entity" if "TimeoutDataTableName" in parts.path else "blob"
        found[f"{method} {what}"] += 1
        send(connection, method, url, *args, **options)

    HTTPConnection.putrequest = counting  # type: ignore[method-assign,assignment]
    return found


class RavenBench(Bench):
    """A database of RavenDB full of timeouts, and a ledger beside it."""

    def __init__(self, server: RavenServer, ledger_url: str, span: timedelta) -> None:
        super().__init__(ledger_url, span)
        self.server = server
        self.database = server.create_database()
        where = ServerSettings(url=server.url(), database=self.database)
        self.documents = RavenStore(RavenOptions(server=where))
        ledger = DocumentLedger(self.engine, self.tables)
        self.store = DocumentStoreView(self.engine, self.tables, ledger, self.documents)
        self.claims = DocumentClaims(
            ledger, self.documents, ledger_id=check_identity(self.engine, self.tables)
        )

    def seed(self, rows: int, body_bytes: int) -> None:
        """Store documents as the persistence does, with its ids."""
        left = enumerate(invent(_what(rows, body_bytes, self.span)))
        while some := list(islice(left, 1000)):
            self._batch([_put(number, row) for number, row in some])

    def close(self) -> None:
        """Disconnect."""
        super().close()
        self.documents.close()

    def remove_all(self, batch_rows: int) -> Iterator[tuple[int, float]]:
        """Yield the size and the seconds of each plain removal."""
        path = f"databases/{self.database}/docs?startsWith=TimeoutDatas/&start=0"
        while True:
            begun = time.perf_counter()
            found = self.server.api("GET", f"{path}&pageSize={batch_rows}")["Results"]
            if not found:
                return
            told = [each["@metadata"] for each in found]
            self._batch(
                [
                    {"Id": each["@id"], "ChangeVector": each["@change-vector"], "Type": "DELETE"}
                    for each in told
                ]
            )
            yield len(found), time.perf_counter() - begun

    def _batch(self, commands: Sequence[dict[str, object]]) -> None:
        path = f"databases/{self.database}/bulk_docs"
        self.server.api("POST", path, {"Commands": commands})


def _put(number: int, row: SeedRow) -> dict[str, object]:
    due_at = row.due_at or START
    document = {
        "Destination": row.destination,
        "SagaId": row.saga_id,
        "State": base64.b64encode(row.body or b"").decode(),
        "Time": due_at.strftime("%Y-%m-%dT%H:%M:%S.%f0Z"),
        "OwningTimeoutManager": ENDPOINT,
        "Headers": json.loads(row.headers_text or "null"),
        "@metadata": {"@collection": "TimeoutDatas"},
    }
    id_ = f"TimeoutDatas/{number + 1}-A"
    return {"Id": id_, "ChangeVector": None, "Document": document, "Type": "PUT"}


def _what(rows: int, body_bytes: int, span: timedelta) -> SeedSpec:
    return SeedSpec(
        endpoint=ENDPOINT,
        count=rows,
        due_from=START,
        due_until=START + span,
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
        "--server", choices=["postgresql", "mariadb", "azurite", "ravendb"], default="postgresql"
    )
    parser.add_argument("--days", type=float, default=DAYS)
    options = parser.parse_args()
    span = timedelta(days=options.days)
    with ExitStack() as stack:
        server: PostgresServer | MariadbServer
        server = _mariadb() if options.server == "mariadb" else _postgresql()
        stack.enter_context(server)
        bench = Bench(server.url(server.create_database()), span)
        if options.server == "azurite":
            azurite = stack.enter_context(AzuriteServer())
            bench = AzureBench(azurite.url(), server.url(server.create_database()), span)
        if options.server == "ravendb":
            raven = stack.enter_context(RavenServer())
            plain, bench = (
                RavenBench(raven, server.url(server.create_database()), span) for _ in range(2)
            )
            plain.seed(options.rows, options.body_bytes)
            print("read and removed, no ledger:")
            _print_claims(list(plain.remove_all(options.batch_rows)))
            plain.close()
        begun = time.perf_counter()
        bench.seed(options.rows, options.body_bytes)
        print(f"seeded {options.rows} rows in {time.perf_counter() - begun:.0f} s")
        _print_claims(list(bench.claim_all(options.batch_rows)))
        if isinstance(bench, AzureBench):
            bench.tell_requests(options.rows)
        for name, size in bench.sizes():
            print(f"{name:16} {size}")
        bench.close()


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
