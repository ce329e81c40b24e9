"""Timeouts are moved through a fault of a RabbitMQ cluster, and accounted for by message id.

``dev/cluster`` prints the table of all faults; tests run single trials.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Final

from pika.exceptions import AMQPError

from dev.cluster import WORKER_TIMEOUT_S, Cluster, ClusterNode
from dev.postgres import PostgresServer
from dev.processes import ServerFailedError, ServerMissingError, wait_until
from migrator.nservicebus.tags import Attempt, parse_tag
from tests.e2e.cluster_faults import FAULTS, Fault
from tests.e2e.rig import Rig
from tests.e2e.rows import Found, Row, row
from tests.e2e.supervised import Supervised

MODES: Final = ("staged", "direct")
RECEIVER: Final = "Billing"


@dataclass(kw_only=True)
class Result:
    """The books of one trial."""

    fault: str
    mode: str
    killed: bool
    """Whether the program was killed with -9 while the fault lasted."""
    attempted: int = 0
    lost: int = 0
    by_broker: int = 0
    """Copies of one attempt: the broker made them."""
    by_us: int = 0
    """Copies of several attempts: we did; those of overdue timeouts apart."""
    by_us_overdue: int = 0
    """What the promise allows in ``staged``, too: these go direct."""
    doubtful: int = 0
    """Ends with exit code 6."""
    endings: list[int] = field(default_factory=list)
    """Exit codes of the program before it was asked to end."""
    person: str = ""
    """What was left for a person to do."""
    standstill_s: float = 0.0
    """The longest time without a row handed over, while there were rows."""
    verify: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the promise was kept, and nobody had to do anything.

        ``direct`` may double the batch in flight, and ``verify`` says so then.
        """
        may_double = self.mode == "direct"
        ours = 0 if may_double else self.by_us
        surprising = 0 if may_double and self.by_us else self.verify
        return not (self.lost or ours or self.doubtful or self.person or surprising)


class ClusterRig(Rig):
    """A rig on a cluster: the program is given all nodes, the test itself takes the first."""

    cluster: Cluster
    vhost: str

    def environment(self, **more: str) -> dict[str, str]:
        nodes = ",".join(self.cluster.amqp_urls(self.vhost))
        managed = ",".join(node.management_url for node in self.cluster.nodes)
        urls = {"MIGRATOR_BROKER__URL": nodes, "MIGRATOR_BROKER__MANAGEMENT_URL": managed}
        return super().environment(**(urls | more))

    def create_receivers(self, *names: str, direct: bool = False) -> None:
        """Declare receivers' queues that survive the loss of a node."""
        with self.amqp() as connection:
            channel = connection.channel()
            for name in names:
                quorum = {"x-queue-type": "quorum"}
                channel.queue_declare(name, durable=True, arguments=quorum)
                channel.exchange_declare(name, "fanout", durable=True)
                channel.queue_bind(name, name, "")


@contextmanager
def rig_on(cluster: Cluster, database_url: str) -> Iterator[ClusterRig]:
    """Yield a rig in a virtual host of its own, whose queues the nodes lead in turn."""
    vhost = f"t{time.monotonic_ns()}"
    first = cluster.nodes[0]
    wait_until(lambda: _is_created(first, vhost), what="no virtual host")
    rig = ClusterRig(database_url=database_url, broker_url=first.amqp_url(vhost), is_fresh=True)
    rig.cluster, rig.vhost = cluster, vhost
    try:
        rig.prepare(RECEIVER)
        cluster.spread(vhost)
        _place_lane(rig)
        yield rig
    finally:
        rig.close()
        with suppress(ServerFailedError, OSError):
            first.delete_vhost(vhost)


def _is_created(node: ClusterNode, vhost: str) -> bool:
    """Create a virtual host; a busy node gives up waiting for it, and has it a moment later."""
    try:
        node.create_vhost(vhost)
    except ServerFailedError:
        return False
    return True


def _place_lane(rig: ClusterRig) -> None:
    """Have the lane's queues, led by another node than the one that the program is connected to."""
    rig.insert([row() for _ in range(3)])
    rig.migrate("--mode", "staged")
    for queue in rig.cluster.quorum_queues(rig.vhost):
        if queue.startswith(("migrator.staging.", "migrator.receipts.")):
            rig.cluster.transfer(queue, rig.vhost, rig.cluster.nodes[1])


def trial(rig: ClusterRig, name: str, mode: str, *, count: int, is_killed: bool = False) -> Result:
    """Move *count* timeouts while the fault *name* happens; return the books."""
    result = Result(fault=name, mode=mode, killed=is_killed, attempted=count)
    rows = _rows(count)
    rig.insert(rows)
    begun = time.monotonic()
    runs = Supervised(rig, mode, rate=max(count // 15, 50))
    try:
        runs.wait_for(count // 5)
        fault = threading.Thread(target=_happen, args=(FAULTS[name], rig))
        fault.start()
        if is_killed:
            time.sleep(1.0)
            runs.kill()
        fault.join()
        rig.cluster.heal()
        result.person = "" if runs.wait_for(count) else runs.left()
    finally:
        runs.end()
    result.endings, result.standstill_s = runs.endings, round(runs.standstill_s, 1)
    result.doubtful = runs.endings.count(6)
    result.seconds = round(time.monotonic() - begun, 1)
    result.verify = _verified(rig)
    _count(result, rows, _collect(rig, {each.id for each in rows} - rig.stored_ids()))
    return result


def _verified(rig: ClusterRig) -> int:
    """Return what ``verify`` ends with once messages that the broker holds back have gone on."""
    deadline_s = time.monotonic() + 60
    while (done := rig.run("verify")).returncode and time.monotonic() < deadline_s:
        time.sleep(5)
    if done.returncode:
        print(f"verify ended {done.returncode}: {done.stdout}{done.stderr}", file=sys.stderr)
    return done.returncode


def _rows(count: int) -> list[Row]:
    """Return timeouts that are far, near (they arrive meanwhile), and a few overdue."""
    overdue, near = count // 50, count // 5
    dues = [timedelta(minutes=-1)] * overdue + [timedelta(seconds=40 + n % 40) for n in range(near)]
    dues += [timedelta(days=2, seconds=n) for n in range(count - len(dues))]
    return [row(due, destination=RECEIVER) for due in dues]


def _happen(fault: Fault, rig: ClusterRig) -> None:
    fault.happen(rig.cluster, rig.vhost)


def _collect(rig: ClusterRig, expected: set[str]) -> list[Found]:
    """Take all messages out of levels and receivers; waits for what is on a dead-letter hop."""
    found: list[Found] = []
    deadline_s = time.monotonic() + 120
    while True:
        taken: list[Found] = []
        with suppress(AMQPError, OSError):
            taken += rig.drain_levels()
            taken += rig.drain(RECEIVER)
        found += taken
        missing = expected - {each.timeout_id for each in found}
        if not taken and (not missing or time.monotonic() > deadline_s):
            return found
        time.sleep(1.0)


def _count(result: Result, rows: Sequence[Row], found: Iterable[Found]) -> None:
    copies: dict[str, Counter[Attempt]] = defaultdict(Counter)
    for message in found:
        mark = parse_tag(message.properties.app_id)
        copies[message.timeout_id][mark.attempt] += 1
    overdue = {each.id for each in rows[: len(rows) // 50]}
    for each in rows:
        passes = copies.get(each.id, Counter())
        result.lost += not passes
        result.by_broker += sum(passes.values()) - len(passes)
        again = max(len(passes) - 1, 0)
        if each.id in overdue:
            result.by_us_overdue += again
        else:
            result.by_us += again


def trials(
    names: Sequence[str],
    modes: Sequence[str],
    *,
    rounds: int,
    count: int,
    kills: Sequence[bool],
    worker_timeout_s: float,
) -> Iterator[Result]:
    """Yield the books of each fault, mode and round; one cluster per way to handle partitions."""
    handlings = sorted({FAULTS[name].partition_handling for name in names})
    with PostgresServer() as server:
        for handling in handlings:
            with Cluster(partition_handling=handling, worker_timeout_s=worker_timeout_s) as cluster:
                plan = [
                    (name, mode, is_killed)
                    for _ in range(rounds)
                    for name in names
                    if FAULTS[name].partition_handling == handling
                    for mode in modes
                    for is_killed in kills
                ]
                for name, mode, is_killed in plan:
                    with rig_on(cluster, server.url(server.create_database())) as rig:
                        yield trial(rig, name, mode, count=count, is_killed=is_killed)
                    cluster.heal()


def table(results: Iterable[Result]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    columns = [*Result.__dataclass_fields__]
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for each in results:
        yield "| " + " | ".join(str(value) for value in asdict(each).values()) + " |"


def main() -> int:
    """Run the trials that are asked for; return 1 when the promise was broken."""
    parser = argparse.ArgumentParser(prog="dev/cluster", description=__doc__)
    parser.add_argument("--fault", action="append", choices=[*FAULTS], help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2000, help="timeouts per trial")
    parser.add_argument(
        "--kill", choices=("no", "yes", "both"), default="both", help="kill -9 of migrator as well"
    )
    parser.add_argument(
        "--worker-timeout",
        type=float,
        default=WORKER_TIMEOUT_S,
        metavar="S",
        help="the broker's dead_letter_worker_publisher_confirm_timeout; its default is 180",
    )
    parser.add_argument("--json", action="store_true", help="one object per trial")
    options = parser.parse_args()
    kills = {"no": [False], "yes": [True], "both": [False, True]}[options.kill]
    results = trials(
        options.fault or [*FAULTS],
        options.mode or MODES,
        rounds=options.rounds,
        count=options.rows,
        kills=kills,
        worker_timeout_s=options.worker_timeout,
    )
    done: list[Result] = []
    try:
        for result in results:
            done.append(result)
            print(json.dumps(asdict(result)), flush=True, file=_out(options.json))
    except ServerMissingError as missing:
        print(missing, file=sys.stderr)
        return 4
    if not options.json:
        print("\n".join(table(done)))
    return 0 if all(each.is_good for each in done) else 1


def _out(is_json: bool) -> Any:
    return sys.stdout if is_json else sys.stderr


if __name__ == "__main__":
    sys.exit(main())
