"""How fast is a verification? Hands over N timeouts, then looks at each of them.

    .venv/bin/python -m benchmarks.verify --rows 100000

Starts a private PostgreSQL (with fsync) and a private RabbitMQ, hands over timeouts due from a
day to a year, sends messages of somebody else that become due while the levels are looked
through, and tells how late those were.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

from benchmarks.handover import watch
from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.e2e.test_verify import foreign, lateness_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=500)
    given = parser.parse_args()
    with PostgresServer(fsync=True) as server, RabbitNode() as node:
        node.create_vhost("verify")
        rig = Rig(
            database_url=server.url(server.create_database()),
            broker_url=node.amqp_url("verify"),
            management_url=node.management_url,
        )
        try:
            _measure(rig, given.rows, b"x" * given.body_bytes)
        finally:
            rig.close()


def _measure(rig: Rig, rows: int, body: bytes) -> None:
    rig.prepare("Billing")
    year_s = 364 * 86_400
    rig.insert(row(timedelta(days=1, seconds=n * year_s // rows), body=body) for n in range(rows))
    rig.migrate("--mode", "direct", "--cutoff", "0s", timeout=600)
    with tempfile.TemporaryDirectory() as folder:
        for name, options in {
            "sums": (),
            "scan": ("--scan",),
            "scan with evidence": ("--scan", "--evidence", f"{folder}/evidence.jsonl"),
        }.items():
            # those of others: a message every 20 ms for two minutes, in the levels all the while
            due = foreign(rig, [5 + n / 50 for n in range(6000)]) if name == "scan" else {}
            late: list[float] = []
            waiting = threading.Thread(
                target=lambda late=late, due=due: late.extend(lateness_s(rig, due, seconds=200))  # type: ignore[misc]  # mypy cannot type a lambda's default
            )
            if due:
                waiting.start()
            _one(rig, name, options, rows)
            if due:
                waiting.join()
                late.sort()
                print(
                    f"  of others: {len(late)}, earliest {late[0]:.2f} s, median "
                    f"{late[len(late) // 2]:.2f} s, p99 {late[len(late) * 99 // 100]:.2f} s, "
                    f"worst {late[-1]:.2f} s late"
                )
        size = Path(folder, "evidence.jsonl").stat().st_size
        print(f"evidence: {size / 2**20:.1f} MiB, {size // rows} bytes a timeout")


def _one(rig: Rig, name: str, options: tuple[str, ...], rows: int) -> None:
    began = time.perf_counter()
    process = rig.start("verify", "--json", *options)
    cpu_s, peak_mib = watch(process)
    done = rig.finish(process)
    if not done.stdout:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    wall_s = time.perf_counter() - began
    seen = sum((level["ours"] or 0) + (level["foreign"] or 0) for level in found["levels"])
    print(
        f"{name}: {found['verdict']}, {found['rows_checked']} rows, {seen} messages in "
        f"{wall_s:.1f} s ({rows / wall_s:.0f} rows/s), {cpu_s:.1f} s CPU, {peak_mib:.0f} MiB peak; "
        f"not checked: {found['not_checked']}"
    )


if __name__ == "__main__":
    main()
