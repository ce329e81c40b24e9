"""The real program through faults of a RabbitMQ cluster: nothing lost, nothing doubtful.

A start of three nodes and one trial take a minute each, so all of it runs with --full only, or by
``dev/cluster``, which prints the account of each trial. The program is connected to the first node,
and the second one leads its staging queue.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from pika.exceptions import AMQPError

from dev.cluster import WORKER_TIMEOUT_S, Cluster
from dev.processes import ServerFailedError, wait_until
from migrator.errors import ExitCode
from migrator.nservicebus.tags import Attempt, parse_tag
from tests.conftest import three_nodes
from tests.e2e.rig import Rig
from tests.e2e.rows import Found, Row, row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS: Final = int(os.environ.get("CLUSTER_ROWS", "1500"))
RECEIVER: Final = "Billing"
LONG_S: Final = 12.0
"""Longer than the heartbeat and the net tick allow."""
SHORT_S: Final = 0.4
_RESTART_S: Final = 2.0
_PATIENCE_S: Final = 300.0

# ── faults ──────────────────────────────────────────────────────────────────────────────────

Fault = Callable[[Cluster, str], None]
"""Given the cluster and the virtual host; returns when the fault is over."""


def _outage(number: int, begin: str, end: str, cluster: Cluster, _vhost: str) -> None:
    getattr(cluster.nodes[number], begin)()
    time.sleep(LONG_S)
    getattr(cluster.nodes[number], end)()


def _cut(cluster: Cluster, _vhost: str) -> None:
    cluster.nodes[0].on.cut_clients()
    time.sleep(LONG_S)
    cluster.nodes[0].on.cut_clients(is_cut=False)


def _split(seconds: float, cluster: Cluster, _vhost: str) -> None:
    with cluster.split(cluster.nodes[0]):
        time.sleep(seconds)
    time.sleep(5)  # before anybody looks after it


def _transfer(cluster: Cluster, vhost: str) -> None:
    for turn in (1, 2, 3):
        for number, queue in enumerate(cluster.quorum_queues(vhost)):
            cluster.transfer(queue, vhost, cluster.nodes[(number + turn) % len(cluster.nodes)])


FAULTS: Final[dict[str, Fault]] = {
    **{
        f"{begin}-{who}": partial(_outage, number, begin, end)
        for begin, end in (("kill", "start"), ("stop", "start"), ("freeze", "thaw"))
        for number, who in enumerate(("client-node", "leader"))
    },
    "cut": _cut,
    "split-short": partial(_split, SHORT_S),
    "split-long": partial(_split, LONG_S),
    "split-short-pause": partial(_split, SHORT_S),
    "split-long-pause": partial(_split, LONG_S),
    "transfer": _transfer,
    "roll": lambda cluster, _vhost: cluster.roll(),
}
"""By name; those that end in *pause* happen to a cluster whose minority pauses."""


# ── the program ─────────────────────────────────────────────────────────────────────────────


class Supervised:
    """A daemon that is started again whenever it ends, by systemd or by a person."""

    def __init__(self, rig: Rig, mode: str, *, rate: int) -> None:
        """Start it, handing over *rate* timeouts a second at most."""
        self._rig = rig
        self._options = ("run", "--endpoint", rig.endpoint, "--mode", mode, "--cutoff", "0s")
        self._settings = {
            "MIGRATOR_HANDOVER__RATE_LIMIT": str(rate),
            "MIGRATOR_HANDOVER__BATCH_SIZE": "250",
        }
        self._before = self._handed_over()
        self.endings: list[int] = []
        self.standstill_s = 0.0
        self._last_s = time.monotonic()
        self._last = 0
        self._killed: set[int] = set()
        self._process = self._start()

    def _start(self) -> Any:
        return self._rig.start(*self._options, **self._settings)

    def kill(self) -> None:
        """``kill -9``, once; it is started again."""
        self._killed.add(self._process.pid)
        self._process.send_signal(signal.SIGKILL)

    def wait_for(self, count: int) -> bool:
        """Wait until *count* rows are handed over; return whether they were."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while (now := self._handed_over() - self._before) < count:
            self._look(now)
            if time.monotonic() > deadline_s or self.endings.count(ExitCode.DOUBTFUL) > 2:
                return False
            time.sleep(0.2)
        self._look(now)
        return True

    def _look(self, handed_over: int) -> None:
        now_s = time.monotonic()
        self.standstill_s = max(self.standstill_s, now_s - self._last_s)
        if handed_over > self._last:
            self._last, self._last_s = handed_over, now_s
        if self._process.poll() is not None:
            if self._process.pid not in self._killed:
                self.endings.append(self._process.returncode)
                said = self._rig.finish(self._process).stderr
                print(f"ended {self._process.returncode}: {said[-1500:]}", file=sys.stderr)
            time.sleep(_RESTART_S)
            self._process = self._start()

    def _handed_over(self) -> int:
        ((found,),) = self._rig.query(
            "SELECT count(*) FROM migrator.timeout t JOIN migrator.batch b ON b.id = batch_id "
            "WHERE b.state = 'handed_over' OR t.state = 'quarantined'"
        )
        return int(found)

    def left(self) -> str:
        """Return what is not done, for a person."""
        states = ", ".join(f"{n} {state}" for state, n in sorted(self._rig.batch_states().items()))
        return f"{len(self._rig.stored_ids())} in the store; batches: {states}"

    def end(self) -> None:
        """Ask the program to end as systemd would."""
        self._process.send_signal(signal.SIGTERM)
        code = self._rig.finish(self._process).returncode
        if code and self._process.pid not in self._killed:
            self.endings.append(code)


# ── the account ─────────────────────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class Result:
    """The account of one trial."""

    mode: str
    lost: int = 0
    by_broker: int = 0
    """Copies of one attempt: the broker made them."""
    by_us: int = 0
    """Copies of several attempts: we did; those of overdue timeouts apart."""
    by_us_overdue: int = 0
    """What the promise allows in ``staged``, too: these go direct."""
    endings: list[int] = field(default_factory=list)
    """Exit codes of the program before it was asked to end."""
    person: str = ""
    """What was left for a person to do."""
    standstill_s: float = 0.0
    """The longest time without a row handed over, while there were rows."""
    verify: int = 0

    @property
    def is_good(self) -> bool:
        """Whether the promise was kept, and nobody had to do anything.

        ``direct`` may double the batch in flight, and ``verify`` says so then.
        """
        may_double = self.mode == "direct"
        ours = 0 if may_double else self.by_us
        surprising = 0 if may_double and self.by_us else self.verify
        is_doubtful = ExitCode.DOUBTFUL in self.endings
        return not (self.lost or ours or is_doubtful or self.person or surprising)


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

    def is_created() -> bool:
        """Create it; a busy node gives up waiting for it, and has it a moment later."""
        with suppress(ServerFailedError):
            first.create_vhost(vhost)
            return True
        return False

    wait_until(is_created, what="no virtual host")
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


def _place_lane(rig: ClusterRig) -> None:
    """Have the lane's queues, led by another node than the one that the program is connected to."""
    rig.insert([row() for _ in range(3)])
    rig.migrate("--mode", "staged")
    for queue in rig.cluster.quorum_queues(rig.vhost):
        if queue.startswith(("migrator.staging.", "migrator.receipts.")):
            rig.cluster.transfer(queue, rig.vhost, rig.cluster.nodes[1])


def trial(rig: ClusterRig, name: str, mode: str, *, count: int, is_killed: bool = False) -> Result:
    """Move *count* timeouts while the fault *name* happens; return the account."""
    result = Result(mode=mode)
    rows = _rows(count)
    rig.insert(rows)
    runs = Supervised(rig, mode, rate=max(count // 15, 50))
    try:
        runs.wait_for(count // 5)
        fault = threading.Thread(target=FAULTS[name], args=(rig.cluster, rig.vhost))
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
        attempts = copies.get(each.id, Counter())
        result.lost += not attempts
        result.by_broker += sum(attempts.values()) - len(attempts)
        again = max(len(attempts) - 1, 0)
        if each.id in overdue:
            result.by_us_overdue += again
        else:
            result.by_us += again


# ── trials ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cluster_with() -> Iterator[Callable[[str], Cluster]]:
    """Start one cluster per way to handle partitions, each when it is first asked for."""
    running: dict[str, Cluster] = {}
    worker_timeout_s = float(os.environ.get("CLUSTER_WORKER_TIMEOUT_S", WORKER_TIMEOUT_S))
    with ExitStack() as stack:

        def of(handling: str) -> Cluster:
            if handling not in running:
                cluster = three_nodes(
                    partition_handling=handling, worker_timeout_s=worker_timeout_s
                )
                running[handling] = stack.enter_context(cluster)
            return running[handling]

        yield of


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("name", [*FAULTS])
def test_a_fault_of_the_cluster(
    cluster_with: Callable[[str], Cluster],
    database: str,
    name: str,
    mode: str,
    is_killed: bool,
) -> None:
    """All arrive; the program doubles none in ``staged``, and leaves nothing to a person."""
    cluster = cluster_with("pause_minority" if name.endswith("pause") else "ignore")
    cluster.heal()
    with rig_on(cluster, database) as rig:
        result = trial(rig, name, mode, count=ROWS, is_killed=is_killed)
    print(result)
    assert result.is_good, result
