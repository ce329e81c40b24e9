"""How fast are timeouts handed over from Azure Storage, and are the last as fast as the first?

    .venv/bin/python -m benchmarks.azure --rows 5000 20000
    .venv/bin/python -m benchmarks.azure --rows 5000 --bodies keep
    .venv/bin/python -m benchmarks.azure --rows 1000 --before 2d539e9

Fills an account of Azurite, Microsoft's emulator, and has copies of the same files emptied: by a
client that only reads the bodies, as every tool has to; by one that sends the same requests as a
claim does, and records nothing; and by the whole program, ``migrator run --once``, with a ledger in
a private PostgreSQL and a private RabbitMQ, without a pace. With --before, also by the claims alone
of another commit of this project, and of this checkout.

Prints the rate of all, and of each tenth of the rows; requests for each timeout; processor time for
each timeout of the client, its start included, and of the emulator; the rate as a part of the same
requests'; and for the program the seconds from its start to its end. The emulator is one process on
one core: its processor time for each timeout is the bound of any rate, whoever asks. It looks
through all blobs of the account for each that is read, and sorts all of them for each that is
removed.
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
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.append(str(Path(__file__).resolve().parent.parent))

import psutil

from benchmarks import claims
from benchmarks.claims import ENDPOINT, START
from dev.servers import AzuriteServer, PostgresServer, RabbitNode
from migrator.nservicebus.timeouts import NO_SAGA
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore
from migrator.stores.sql.seeding import SeedSpec, invent

BODIES, SAME = "bodies alone", "the same requests"
CHECKOUT = Path(__file__).resolve().parent.parent
TABLE, CONTAINER = "TimeoutDataTableName", "timeoutstate"
PARTS = 10
_LONGEST_S = 3600.0
"""That the program may take."""
Moments = Sequence[tuple[int, float]]
"""Of each part that was done, in order: how many timeouts, and when, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Emptied:
    """How one client emptied an account."""

    who: str
    moments: Moments
    client_s: float
    azurite_s: float
    requests: int | None = None
    whole_s: float | None = None
    """From the start of the program to its end."""

    @property
    def rows(self) -> int:
        """How many timeouts there were."""
        return sum(size for size, _ in self.moments)

    @property
    def per_second(self) -> float:
        """The rate of all."""
        return self.rows / self.moments[-1][1]

    def tenths(self) -> Sequence[float]:
        """Return the rates of the first to the last tenth of the rows."""
        rows, ended_s, done = [0] * PARTS, [0.0] * PARTS, 0
        for size, at_s in self.moments:
            part = min(PARTS * done // self.rows, PARTS - 1)
            rows[part] += size
            ended_s[part] = at_s
            done += size
        ended = [(count, at_s) for count, at_s in zip(rows, ended_s, strict=True) if count]
        begun = [0.0, *(at_s for _, at_s in ended)]
        return [count / (at_s - since) for (count, at_s), since in zip(ended, begun, strict=False)]


# ── clients, each in a process of its own ───────────────────────────────────────────────────────


def entries_of(account: Account) -> list[Any]:
    """Return all time entries, soonest first."""
    where = "OwningTimeoutManager eq @owner and PartitionKey ge @first and PartitionKey le @last"
    keys = {"owner": ENDPOINT, "first": "2000", "last": "3000"}
    found = [each for page in account.pages(where, keys, doing="listing") for each in page]
    return [each for each in found if each["PartitionKey"] == each["Time"][:13].translate(_KEY)]


def read_bodies(account_url: str, batch_rows: int) -> Iterator[tuple[int, float]]:
    """Yield the size of each part of which the bodies are read, and when."""
    account = _account(account_url)
    begun = time.perf_counter()
    left = entries_of(account)
    while left:
        some, left = left[:batch_rows], left[batch_rows:]
        list(account.each(lambda e: account.bodies.read(e["StateAddress"], most=2**27), some))
        yield len(some), time.perf_counter() - begun
    account.close()


def send_the_same(
    account_url: str, batch_rows: int, *, keeps_bodies: bool
) -> Iterator[tuple[int, float]]:
    """Yield the size of each part of which all that a claim asks for is asked, and when."""
    account = _account(account_url)
    tables, begun = account.tables, time.perf_counter()

    def read(entry: Any) -> tuple[Any, Any, Any]:
        main, id_ = tables.entity(TABLE, entry["RowKey"], ""), entry["RowKey"]
        has_saga = main["SagaId"] != NO_SAGA
        saga = tables.entity(TABLE, main["SagaId"], id_) if has_saga else None
        return main, saga, account.bodies.read(main["StateAddress"], most=2**27)

    def take(main: Any) -> None:
        id_ = main["PartitionKey"]
        proof = {"PartitionKey": id_, "RowKey": "migrator.proof", "Step": "closed"}
        removal = tables.deleting(TABLE, id_, "", main["odata.etag"])
        tables.transact([removal, tables.creating(TABLE, proof)])

    def clear(entities: Sequence[Any]) -> None:
        where = [(each["PartitionKey"], each["RowKey"], each["odata.etag"]) for each in entities]
        if len(where) == 1:
            tables.delete(TABLE, *where[0])
        else:
            tables.transact([tables.deleting(TABLE, *each) for each in where])

    left = entries_of(account)
    while left:
        some, left = left[:batch_rows], left[batch_rows:]
        found = [*account.each(read, some)]
        list(account.each(take, [main for main, _, _ in found]))
        list(account.each(clear, [[saga] for _, saga, _ in found if saga is not None]))
        hours = defaultdict[str, list[Any]](list)
        for each in some:
            hours[each["PartitionKey"]].append(each)
        groups = [hour[at : at + 100] for hour in hours.values() for at in range(0, len(hour), 100)]
        list(account.each(clear, groups))
        if not keeps_bodies:
            blobs = [(main["StateAddress"], body.headers["ETag"]) for main, _, body in found]
            parts = [blobs[at : at + 256] for at in range(0, len(blobs), 256)]
            list(account.each(account.bodies.delete, parts))
        list(account.each(lambda e: tables.delete(TABLE, e["RowKey"], "migrator.proof"), some))
        yield len(some), time.perf_counter() - begun
    account.close()


_KEY = str.maketrans("", "", "-T")
"""Makes the first characters of a time the key of its partition."""


def client(options: argparse.Namespace) -> None:
    """Empty the account, and print how it went; importing this takes time of its own."""
    begun_s = time.process_time()
    if options.client == BODIES:
        requests = claims.count_requests()
        moments = list(read_bodies(options.account, options.batch_rows))
    elif options.client == SAME:
        requests = claims.count_requests()
        keeps = options.bodies == "keep"
        moments = list(send_the_same(options.account, options.batch_rows, keeps_bodies=keeps))
    else:
        bench = claims.AzureBench(options.account, options.client, timedelta(days=300))
        requests = bench.requests
        took = list(bench.claim_all(options.batch_rows))
        ended = accumulate(seconds for _, seconds in took)
        moments = [(size, at_s) for (size, _), at_s in zip(took, ended, strict=True)]
        bench.close()
    took_s = time.process_time() - begun_s
    print(json.dumps({"moments": moments, "requests": requests.total(), "s": took_s}))


# ── the benchmark ───────────────────────────────────────────────────────────────────────────────


class Benchmark:
    """An account that was filled once, and what empties copies of it."""

    def __init__(self, folder: Path, postgres: PostgresServer, options: argparse.Namespace) -> None:
        self.folder, self.postgres, self.options = folder, postgres, options

    def fill(self, rows: int) -> None:
        """Store timeouts as the persistence does."""
        with AzuriteServer(data_dir=self.folder / "full") as azurite:
            store = AzureStore(_account(azurite.url()), parse_scope("yyyyMMddHH"))
            what = SeedSpec(
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
        """Have a copy emptied by the claims of *checkout*, or by a client without a ledger."""
        with self._copy() as azurite:
            is_bare = who in (BODIES, SAME)
            client = who if is_bare else self.postgres.url(self.postgres.create_database())
            before_s = _cpu_s(azurite)
            given = {"account": azurite.url(), "client": client, "bodies": self.options.bodies}
            given["batch-rows"] = str(self.options.batch_rows)
            told = subprocess.run(
                [sys.executable, "-P", __file__, *(f"--{k}={v}" for k, v in given.items())],
                env=os.environ | {"PYTHONPATH": str(checkout)},
                stdout=subprocess.PIPE,
                check=True,
            )
            found = json.loads(told.stdout)
            return Emptied(
                who=who,
                moments=found["moments"],
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
                "MIGRATOR_STORE__AZURE__BODIES": self.options.bodies,
                "MIGRATOR_HANDOVER__BATCH_SIZE": str(self.options.batch_rows),
                "MIGRATOR_HANDOVER__PACE": "full",
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
            rig.must("run", "--endpoint", ENDPOINT, "--once", timeout=_LONGEST_S)
            ended_s = os.times()
            found = rig.query(
                "SELECT size, extract(epoch FROM handed_over_at - r.begun_at)"
                " FROM migrator.batch b JOIN migrator.run r ON r.id = b.run_id"
                " ORDER BY handed_over_at"
            )
            rig.close()
            return Emptied(
                who="run --once",
                moments=[(size, float(seconds)) for size, seconds in found],
                client_s=ended_s.children_user
                + ended_s.children_system
                - begun_s.children_user
                - begun_s.children_system,
                azurite_s=_cpu_s(azurite) - before_s,
                whole_s=ended_s.elapsed - begun_s.elapsed,
            )

    def _copy(self) -> AzuriteServer:
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        shutil.copytree(self.folder / "full" / "data", self.folder / "copy" / "data")
        return AzuriteServer(data_dir=self.folder / "copy")


def print_head(rows: int, bodies: str) -> None:
    """Print what the columns are."""
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{rows} timeouts, bodies: {bodies}; load {load}")
    heads = f"{'requests':>9} {'client ms':>10} {'Azurite ms':>11} {'x same':>7} {'whole s':>8}"
    print(f"{'':24}{'/s':>6} {'/s of each tenth':>{5 * PARTS}} {heads}", flush=True)


def print_line(each: Emptied, same: Emptied) -> None:
    """Print how a client did, beside the same requests."""
    tenths = "".join(f"{rate:5.0f}" for rate in each.tenths())
    requests = "" if each.requests is None else f"{each.requests / each.rows:.2f}"
    whole = "" if each.whole_s is None else f"{each.whole_s:.1f}"
    print(
        f"{each.who:24}{each.per_second:6.0f} {tenths:>{5 * PARTS}} {requests:>9}"
        f" {1000 * each.client_s / each.rows:10.2f} {1000 * each.azurite_s / each.rows:11.2f}"
        f" {each.per_second / same.per_second:7.2f} {whole:>8}",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument("--days", type=float, default=10, help="over which they are due")
    parser.add_argument("--body-bytes", type=int, default=500)
    parser.add_argument("--batch-rows", type=int, default=500)
    parser.add_argument("--bodies", choices=["remove", "keep"], default="remove")
    parser.add_argument("--before", metavar="COMMIT", help="compare claims with those of a commit")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--account", help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.account:
        client(options)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-azure-")))
        postgres = stack.enter_context(PostgresServer(fsync=True))
        node = stack.enter_context(RabbitNode())
        checkouts = dict[str, Path]()
        if options.before:
            checkouts = {f"claims at {options.before}": folder / "before", "claims now": CHECKOUT}
            git = ["git", "-C", str(CHECKOUT), "worktree"]
            subprocess.run([*git, "add", "--detach", folder / "before", options.before], check=True)
            removal = [*git, "remove", "--force", str(folder / "before")]
            stack.callback(lambda: subprocess.run(removal, check=False))
        for rows in options.rows:
            benchmark = Benchmark(folder / str(rows), postgres, options)
            benchmark.fill(rows)
            for _ in range(options.rounds):
                print_head(rows, options.bodies)
                same = benchmark.empty(SAME, CHECKOUT)
                print_line(benchmark.empty(BODIES, CHECKOUT), same)
                print_line(same, same)
                for who, checkout in checkouts.items():
                    print_line(benchmark.empty(who, checkout), same)
                print_line(benchmark.run(node), same)


def _account(url: str) -> Account:
    settings = AccountSettings(connection_string=url, table=TABLE, container=CONTAINER, requests=32)
    return Account(settings)


def _cpu_s(azurite: AzuriteServer) -> float:
    used = psutil.Process(azurite._process.pid).cpu_times()
    return float(used.user + used.system)


if __name__ == "__main__":
    main()
