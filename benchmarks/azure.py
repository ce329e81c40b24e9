"""How fast are timeouts claimed from Azure Storage, and are the last as fast as the first?

    .venv/bin/python -m benchmarks.azure --rows 5000 20000
    .venv/bin/python -m benchmarks.azure --rows 5000 --before 2d539e9

Fills an account of Azurite, Microsoft's emulator, and has the same files emptied by turns: by a
plain client, which lists, reads and removes each timeout and records nothing; by the claims of
another commit of this project, with a ledger in PostgreSQL; and by those of this checkout. With
--run, also by the whole program, ``migrator run --once``, into a private RabbitMQ.

Prints the rate for each fifth of the rows, requests for each timeout, processor time for each
timeout of the client and of the emulator, and the rate as a part of the plain client's. The
emulator is one process, reads blobs and entities ever more slowly the more there are, and shares
this machine's cores with all others: of the real service the figures tell how many requests there
are, and what a timeout costs here.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.append(str(Path(__file__).resolve().parent.parent))

import psutil

from benchmarks import claims
from benchmarks.claims import ENDPOINT, START
from dev.servers import AzuriteServer, PostgresServer, RabbitNode
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore
from migrator.stores.sql.seeding import Invention, invent

PLAIN = "plain client"
CHECKOUT = Path(__file__).resolve().parent.parent
TABLE, CONTAINER = "TimeoutDataTableName", "timeoutstate"
Claims = Sequence[tuple[int, float]]
"""Of each claim, in order: how many timeouts, and the seconds it took."""


@dataclass(frozen=True, kw_only=True)
class Emptied:
    """How one client emptied an account."""

    who: str
    claims: Claims
    client_s: float
    azurite_s: float
    requests: int | None = None
    whole_s: float | None = None
    """From the first claim to the last hand-over."""

    @property
    def rows(self) -> int:
        """How many timeouts there were."""
        return sum(size for size, _ in self.claims)

    @property
    def per_second(self) -> float:
        """The rate of all."""
        return self.rows / (self.whole_s or sum(seconds for _, seconds in self.claims))

    def fifths(self) -> Sequence[float]:
        """Return the rates of the first to the last fifth of the rows."""
        rows, taken_s, done = defaultdict[int, int](int), defaultdict[int, float](float), 0
        for size, seconds in self.claims:
            rows[fifth := min(5 * done // self.rows, 4)] += size
            taken_s[fifth] += seconds
            done += size
        return [rows[each] / taken_s[each] for each in sorted(rows)]


# ── clients, each in a process of its own ───────────────────────────────────────────────────────


def empty_plainly(account_url: str, batch_rows: int) -> Iterator[tuple[int, float]]:
    """Yield the size and the seconds of each part that is read and removed."""
    account = _account(account_url)
    begun = time.perf_counter()
    where = "OwningTimeoutManager eq @owner and PartitionKey ge @first and PartitionKey le @last"
    keys = {"owner": ENDPOINT, "first": "2000", "last": "3000"}
    left = [each for page in account.pages(where, keys, doing="listing") for each in page]
    left = [each for each in left if each["PartitionKey"] == f"{each['Time'][:13]}".translate(_KEY)]

    def take(entry: Any) -> tuple[str, str]:
        main = account.tables.entity(TABLE, entry["RowKey"], "")
        body = account.bodies.read(main["StateAddress"], most=2**27)
        if not main["SagaId"].startswith("00000000"):
            account.tables.delete(TABLE, main["SagaId"], entry["RowKey"])
        account.tables.delete(TABLE, entry["RowKey"], "", main["odata.etag"])
        return main["StateAddress"], body.headers["ETag"]

    def clear(entries: Sequence[Any]) -> None:
        account.tables.transact(
            [
                account.tables.deleting(
                    TABLE, each["PartitionKey"], each["RowKey"], each["odata.etag"]
                )
                for each in entries
            ]
        )

    while left:
        some, left = left[:batch_rows], left[batch_rows:]
        blobs = [*account.each(take, some)]
        hours = defaultdict[str, list[Any]](list)
        for each in some:
            hours[each["PartitionKey"]].append(each)
        groups = [hour[at : at + 100] for hour in hours.values() for at in range(0, len(hour), 100)]
        list(account.each(clear, groups))
        parts = [blobs[at : at + 256] for at in range(0, len(blobs), 256)]
        list(account.each(account.bodies.delete, parts))
        yield len(some), time.perf_counter() - begun
        begun = time.perf_counter()
    account.close()


_KEY = str.maketrans("", "", "-T")
"""Makes the first characters of a time the key of its partition."""


def client(options: argparse.Namespace) -> None:
    """Empty the account, and print how it went; importing this takes time of its own."""
    begun_s = time.process_time()
    if options.ledger == "":
        requests = claims.count_requests()
        emptied = list(empty_plainly(options.account, options.batch_rows))
    else:
        bench = claims.AzureBench(options.account, options.ledger, timedelta(days=300))
        requests = bench.requests
        emptied = list(bench.claim_all(options.batch_rows))
        bench.close()
    took_s = time.process_time() - begun_s
    print(json.dumps({"claims": emptied, "requests": requests.total(), "s": took_s}))


# ── the benchmark ───────────────────────────────────────────────────────────────────────────────


class Benchmark:
    """An account that was filled once, and what empties copies of it."""

    def __init__(self, folder: Path, postgres: PostgresServer, options: argparse.Namespace) -> None:
        self.folder, self.postgres, self.options = folder, postgres, options

    def fill(self, rows: int) -> None:
        """Store timeouts as the persistence does."""
        with AzuriteServer(data_dir=self.folder / "full") as azurite:
            store = AzureStore(_account(azurite.url()), parse_scope("yyyyMMddHH"))
            what = Invention(
                endpoint=ENDPOINT,
                count=rows,
                due_from=START,
                due_until=START + timedelta(days=self.options.days),
                destinations=(ENDPOINT, "Billing"),
                body_bytes=self.options.body_bytes,
            )
            store.seed(ENDPOINT, invent(what))
            store.close()
            azurite.stop()  # only then all is on the disk

    def empty(self, who: str, checkout: Path) -> Emptied:
        """Have a copy emptied by the claims of *checkout*, or plainly."""
        with self._copy() as azurite:
            ledger = "" if who == PLAIN else self.postgres.url(self.postgres.create_database())
            before_s = _cpu_s(azurite)
            command = [
                sys.executable,
                "-P",
                __file__,
                "--account",
                azurite.url(),
                "--ledger",
                ledger,
            ]
            command += ["--batch-rows", str(self.options.batch_rows)]
            told = subprocess.run(
                command,
                env=os.environ | {"PYTHONPATH": str(checkout)},
                stdout=subprocess.PIPE,
                check=True,
            )
            found = json.loads(told.stdout)
            return Emptied(
                who=who,
                claims=found["claims"],
                client_s=found["s"],
                azurite_s=_cpu_s(azurite) - before_s,
                requests=found["requests"],
            )

    def run(self, node: RabbitNode) -> Emptied:
        """Have a copy emptied by the whole program, as it is in this checkout."""
        from tests.e2e.rig import Rig

        vhost = f"bench-{secrets.token_hex(4)}"
        node.create_vhost(vhost)
        with self._copy() as azurite:
            url = self.postgres.url(self.postgres.create_database())
            settings = {
                "MIGRATOR_STORE__KIND": "azure",
                "MIGRATOR_STORE__URL": azurite.url(),
                "MIGRATOR_LEDGER__URL": url,
                "MIGRATOR_HANDOVER__BATCH_SIZE": str(self.options.batch_rows),
                "MIGRATOR_LOG__LEVEL": "warning",
            }
            rig = Rig(
                database_url=url,
                broker_url=node.amqp_url(vhost),
                endpoint=ENDPOINT,
                settings=settings,
                is_fresh=True,
            )
            rig.create_ledger()
            rig.create_levels()
            rig.create_receivers(ENDPOINT, "Billing")
            before_s, begun_s = _cpu_s(azurite), os.times()
            rig.must("run", "--endpoint", ENDPOINT, "--once")
            ended_s = os.times()
            moments = rig.query(
                "SELECT size, extract(epoch FROM claimed_at - claiming_at),"
                " extract(epoch FROM max(handed_over_at) OVER () - min(claiming_at) OVER ())"
                " FROM migrator.batch ORDER BY id"
            )
            return Emptied(
                who="run --once now",
                claims=[(size, float(seconds)) for size, seconds, _ in moments],
                client_s=ended_s.children_user
                + ended_s.children_system
                - begun_s.children_user
                - begun_s.children_system,
                azurite_s=_cpu_s(azurite) - before_s,
                whole_s=float(moments[0][2]),
            )

    def _copy(self) -> AzuriteServer:
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        shutil.copytree(self.folder / "full" / "data", self.folder / "copy" / "data")
        return AzuriteServer(data_dir=self.folder / "copy")


def print_head(rows: int) -> None:
    """Print what the columns are."""
    print(f"{rows} timeouts", "/s of each fifth".rjust(45), sep="")
    heads = f"{'requests':>9} {'client ms':>10} {'Azurite ms':>11} x plain"
    print(f"{'':24}{'/s':>6}{'':29} {heads}", flush=True)


def print_line(each: Emptied, plain: Emptied) -> None:
    """Print how a client did, beside the plain one."""
    fifths = "".join(f"{rate:5.0f}" for rate in each.fifths())
    requests = "" if each.requests is None else f"{each.requests / each.rows:.2f}"
    print(
        f"{each.who:24}{each.per_second:6.0f}    {fifths:25} {requests:>9}"
        f" {1000 * each.client_s / each.rows:10.2f} {1000 * each.azurite_s / each.rows:11.2f}"
        f" {each.per_second / plain.per_second:7.2f}",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument("--days", type=float, default=10, help="over which they are due")
    parser.add_argument("--body-bytes", type=int, default=500)
    parser.add_argument("--batch-rows", type=int, default=1000)
    parser.add_argument("--before", metavar="COMMIT", help="a commit to compare with")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--run", action="store_true", help="the whole program, too")
    parser.add_argument("--account", help=argparse.SUPPRESS)
    parser.add_argument("--ledger", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.account:
        client(options)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-azure-")))
        postgres = stack.enter_context(PostgresServer(fsync=True))
        node = stack.enter_context(RabbitNode()) if options.run else None
        checkouts = {"now": CHECKOUT}
        if options.before:
            checkouts = {f"at {options.before}": folder / "before", **checkouts}
            git = ["git", "-C", str(CHECKOUT), "worktree"]
            subprocess.run([*git, "add", "--detach", folder / "before", options.before], check=True)
            removal = [*git, "remove", "--force", str(folder / "before")]
            stack.callback(lambda: subprocess.run(removal, check=False))
        for rows in options.rows:
            benchmark = Benchmark(folder / str(rows), postgres, options)
            benchmark.fill(rows)
            for _ in range(options.rounds):
                print_head(rows)
                print_line(plain := benchmark.empty(PLAIN, CHECKOUT), plain)
                for who, checkout in checkouts.items():
                    print_line(benchmark.empty(f"claims {who}", checkout), plain)
                if node is not None:
                    print_line(benchmark.run(node), plain)


def _account(url: str) -> Account:
    settings = AccountSettings(connection_string=url, table=TABLE, container=CONTAINER, requests=32)
    return Account(settings)


def _cpu_s(azurite: AzuriteServer) -> float:
    used = psutil.Process(azurite._process.pid).cpu_times()
    return float(used.user + used.system)


if __name__ == "__main__":
    main()
