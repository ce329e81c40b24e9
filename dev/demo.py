"""The demonstration: stored timeouts move into the delays and arrive on time, each accounted for.

Everything is real but the endpoints: a private RabbitMQ node, a SQLite database with a legacy
timeouts table, and the `migrator` program run as a person would run it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pika
from rich.console import Console
from rich.live import Live
from rich.rule import Rule
from rich.table import Table

from dev.rabbit import RabbitNode
from migrator.nservicebus.headers import DELIVER_AT
from migrator.nservicebus.wiretime import parse_wire_time

ENDPOINT: Final = "Sales"
DESTINATIONS: Final = ("Sales", "Billing", "Shipping.Orders")
SOON: Final = 120
LATER: Final = 200
BAD: Final = 6
WATCH_S: Final = 120
ON_TIME_S: Final = 2.0


@dataclass
class Arrivals:
    """What reached the destinations: how late, and how often."""

    late_s: list[float] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    doubled: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, properties: pika.BasicProperties) -> None:
        """Count one delivery."""
        late = datetime.now(UTC) - parse_wire_time(properties.headers[DELIVER_AT])
        timeout_id = properties.headers["NServiceBus.RelatedToTimeoutId"]
        with self.lock:
            self.doubled += timeout_id in self.ids
            self.ids.add(timeout_id)
            self.late_s.append(late.total_seconds())


class Receivers:
    """Plays the receiving endpoints: their queues exist, and somebody reads them."""

    def __init__(self, url: str) -> None:
        self.arrivals = Arrivals()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        for name in DESTINATIONS:
            self._channel.exchange_declare(name, "fanout", durable=True)
            self._channel.queue_declare(name, durable=True)
            self._channel.queue_bind(name, name, "")
            self._channel.basic_consume(name, self._on_message, auto_ack=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._consume, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join(timeout=5)
        self._connection.close()

    def _consume(self) -> None:
        while not self._ended.is_set():
            self._connection.process_data_events(time_limit=0.2)

    def _on_message(self, *args: Any) -> None:
        self.arrivals.note(args[2])


class Demo:
    """Runs the story from an empty folder until each timeout is accounted for."""

    def __init__(self, console: Console, node: RabbitNode, folder: Path) -> None:
        self.console = console
        self.node = node
        self.environment = {
            **os.environ,
            "MIGRATOR_STORE__URL": f"sqlite:///{folder / 'legacy.db'}",
            "MIGRATOR_BROKER__URL": node.amqp_url(),
            "MIGRATOR_BROKER__MANAGEMENT_URL": node.management_url,
            "MIGRATOR_HANDOVER__CUTOFF": "0s",
            "MIGRATOR_LOG__LEVEL": "warning",
        }

    def run(self) -> bool:
        """Return whether every timeout is accounted for, and none came early."""
        self._tell("1. A legacy store with timeouts, and a broker with native delays")
        self._migrator("db", "upgrade")
        self._seed("--count", str(SOON), "--due-from", "12s", "--due-to", "35s")
        self._seed("--count", str(LATER), "--due-from", "1h", "--due-to", "30d", "--bad", str(BAD))
        self._migrator("delays", "create")
        receivers = Receivers(self.node.amqp_url())
        try:
            self._tell("2. What would happen (nothing is written)")
            self._migrator("preview", "--endpoint", ENDPOINT)
            self._tell("3. The migration")
            self._migrator("run", "--endpoint", ENDPOINT, "--once", expect=(0, 5))
            self._tell(f"4. The first {SOON} come due; their receivers are listening")
            self._watch(receivers.arrivals)
        finally:
            receivers.close()
        self._tell("5. What became of each")
        return self._balance(receivers.arrivals)

    def _seed(self, *options: str) -> None:
        self._migrator(
            *("seed", "--yes", "--endpoint", ENDPOINT),
            *("--destinations", ",".join(DESTINATIONS), *options),
        )

    def _tell(self, text: str) -> None:
        self.console.print()
        self.console.print(Rule(f"[bold]{text}", align="left"))

    def _migrator(self, *args: str, expect: tuple[int, ...] = (0,)) -> None:
        self.console.print(f"[dim]$ migrator {' '.join(args)}")
        code = subprocess.run(
            [sys.executable, "-m", "migrator", *args], env=self.environment, check=False
        ).returncode
        if code not in expect:
            raise SystemExit(f"`migrator {' '.join(args)}` ended with {code}")

    def _json(self, *args: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "migrator", *args, "--json"],
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
        )
        parsed: dict[str, Any] = json.loads(done.stdout)
        return parsed

    def _watch(self, arrivals: Arrivals) -> None:
        ends = time.monotonic() + WATCH_S
        with Live(_arrivals_table(arrivals), console=self.console, refresh_per_second=4) as live:
            while time.monotonic() < ends and len(arrivals.ids) < SOON:
                time.sleep(0.25)
                live.update(_arrivals_table(arrivals))
            time.sleep(1.5)  # a double would come now
            live.update(_arrivals_table(arrivals))

    def _balance(self, arrivals: Arrivals) -> bool:
        endpoint = self._json("status")["endpoints"][0]
        waiting = sum(q["messages"] for q in self._level_queues())
        quarantined, claimed = endpoint["quarantined"], endpoint["claimed_total"]
        table = Table("where the timeouts are", "count", title_justify="left")
        table.add_row("claimed from the store", str(claimed))
        table.add_row("delivered to their destinations", str(len(arrivals.ids)))
        table.add_row("waiting in the delay levels", str(waiting))
        table.add_row("in quarantine, each with its reason", str(quarantined))
        self.console.print(table)
        lost = claimed - len(arrivals.ids) - waiting - quarantined
        good = (
            claimed == SOON + LATER
            and lost == 0
            and arrivals.doubled == 0
            and len(arrivals.ids) >= SOON
        )
        verdict = "[bold green]balanced" if good else "[bold red]NOT BALANCED"
        self.console.print(f"lost {lost}, doubled {arrivals.doubled}: {verdict}")
        early = sum(late < 0 for late in arrivals.late_s)
        late = sum(late > ON_TIME_S for late in arrivals.late_s)
        self.console.print(
            f"early {early}, more than {ON_TIME_S:g} s late {late} (a busy machine makes some late)"
        )
        return good and not early

    def _level_queues(self) -> list[dict[str, Any]]:
        """Return the level queues once the broker's statistics (every 5 s) have settled."""
        time.sleep(6)
        queues: list[dict[str, Any]] = self.node.api("GET", "queues/%2F")
        return [q for q in queues if q["name"].startswith("nsb.v2.delay-level-")]


def _arrivals_table(arrivals: Arrivals) -> Table:
    with arrivals.lock:
        late = sorted(arrivals.late_s)
    table = Table("arrived", "early", "late, median", "late, worst")
    if late:
        early = sum(x < 0 for x in late)
        middle, worst = late[len(late) // 2], late[-1]
        table.add_row(f"{len(late)} of {SOON}", str(early), f"{middle:.2f} s", f"{worst:.2f} s")
    else:
        table.add_row(f"0 of {SOON}", "0", "-", "-")
    return table


def main() -> int:
    """Run the demonstration; 0 when each timeout is accounted for and none came early."""
    console = Console()
    console.print("[bold]migrator[/]: timeouts from a legacy store into RabbitMQ's native delays")
    console.print("[dim]starting a private RabbitMQ node (about 10 s) ...")
    with tempfile.TemporaryDirectory(prefix="migrator-demo-") as folder, RabbitNode() as node:
        return 0 if Demo(console, node, Path(folder)).run() else 1


if __name__ == "__main__":
    raise SystemExit(main())
