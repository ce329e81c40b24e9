"""Three RabbitMQ nodes as one cluster, each on a host of its own, and the faults they can have.

Needs root and network namespaces; raises ``ServerMissingError`` where there are none.
"""

from __future__ import annotations

import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, Self
from urllib.parse import quote

from dev.network import Host, Network
from dev.processes import ServerFailedError, wait_until
from dev.rabbit import RabbitNode

_SMALL: Final = "+S 1:1 +SDio 1 +sbwt none +sbwtdcpu none +sbwtdio none"
"""One scheduler each: three nodes share two cores with what is tested."""
_NET_TICK_S: Final = 5
"""A silent peer is taken for dead after 4 to 6 seconds; the default is 60."""
WORKER_TIMEOUT_S: Final = 10
"""When a dead-letter worker sends again what was not confirmed; the broker's default is 180 s.

It is what a node failure costs each hop, and would be most of a test's time.
"""

_PARTITIONS: Final = (
    "case erlang:function_exported(rabbit_node_monitor, partitions, 0) of"
    " true -> rabbit_node_monitor:partitions(); false -> [] end."
)


class ClusterNode(RabbitNode):
    """One node of a cluster, on a host of its own; shares cookie and configuration."""

    def __init__(self, on: Host, *, cookie: str, config: str, advanced: str) -> None:
        self.on = self._on = on
        """Its host, and so its wires."""
        self.host = on.address
        self._peer_address = on.peer_address
        super().__init__(cookie=cookie, extra_config=config)
        (self.data_dir / "advanced.config").write_text(advanced)
        (self.data_dir / "inetrc").write_text("{lookup, [file]}.\n")  # no name server answers there

    def peers(self) -> list[str]:
        """Return the running nodes of the cluster as this one sees it, itself among them."""
        return _atoms(self.evaluate("rabbit_nodes:all_running()."))

    def partitions(self) -> list[str]:
        """Return the nodes that this one takes for parted from it; none since 4.3, by design."""
        return _atoms(self.evaluate(_PARTITIONS))

    def resume(self) -> None:
        """Wait until clients are welcome; start a node anew that does not come back by itself.

        One that ``pause_minority`` stopped hung in its own restart in two of five trials.
        """
        try:
            self._process.wait_ready(self._ready, seconds=60)
        except ServerFailedError:  # and it was killed
            self.start()

    def freeze(self) -> None:
        """SIGSTOP: it answers nobody, and its connections stay."""
        self._process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send(signal.SIGCONT)

    def _new_name(self) -> str:
        return f"rabbit@{self._peer_address}"

    def _environment(self) -> dict[str, str]:
        interface = self._peer_address.replace(".", ",")
        arguments = f"-kernel inet_dist_use_interface {{{interface}}} {_SMALL}"
        return super()._environment() | {
            "ERL_INETRC": str(self.data_dir / "inetrc"),
            "ERL_EPMD_ADDRESS": self._peer_address,
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
            "RABBITMQ_CTL_ERL_ARGS": _SMALL,
        }


class Cluster:
    """Nodes of one cluster.

    Use it as a context manager, or call ``start`` and ``close``. After a fault ``heal`` makes it
    whole again.
    """

    def __init__(
        self,
        *,
        size: int = 3,
        partition_handling: str = "ignore",
        worker_timeout_s: float = WORKER_TIMEOUT_S,
    ) -> None:
        """Make the hosts; nothing runs yet.

        Args:
            size: How many nodes.
            partition_handling: The broker's ``cluster_partition_handling``.
            worker_timeout_s: Its ``dead_letter_worker_publisher_confirm_timeout``.
        """
        self._network = Network(size)
        cookie = secrets.token_hex(16)
        lines = [
            "loopback_users = none",
            f"net_ticktime = {_NET_TICK_S}",
            f"cluster_partition_handling = {partition_handling}",
            "cluster_formation.peer_discovery_backend = classic_config",
        ]
        for number, host in enumerate(self._network.hosts, 1):
            name = f"rabbit@{host.peer_address}"
            lines.append(f"cluster_formation.classic_config.nodes.{number} = {name}")
        timeout_ms = round(worker_timeout_s * 1000)
        worker = f"{{dead_letter_worker_publisher_confirm_timeout, {timeout_ms}}}"
        self.nodes: tuple[ClusterNode, ...] = tuple(
            ClusterNode(
                host,
                cookie=cookie,
                config="\n".join(lines),
                advanced=f"[{{rabbit, [{worker}]}}].\n",
            )
            for host in self._network.hosts
        )

    # --- life -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all nodes side by side; return when they are one cluster."""
        self._at_once(lambda node: node.start(), self.nodes)
        self._wait_whole()
        return self

    def close(self) -> None:
        """End everything at once."""
        for node in self.nodes:
            node.close()
        self._network.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def heal(self) -> None:
        """Mend wires, start what is down, and end a partition that the broker does not end."""
        for node in self.nodes:
            node.thaw()
            node.on.cut_peers(is_cut=False)
            node.on.cut_clients(is_cut=False)
        self._at_once(lambda node: node.start(), [n for n in self.nodes if not n.running])
        self._at_once(lambda node: node.resume(), self.nodes)
        wait_until(self._is_connected, what="the nodes do not reach each other")
        # What a person has to do of old: stop all whom the greater part does not see, then start
        # them. Those who stay forget the partition only when nobody of the other side is up.
        views = [parted for node in self.nodes if (parted := node.partitions())]
        parted = min(views, key=len, default=[])
        distrusted = [node for node in self.nodes if node.name in parted]
        self._at_once(lambda node: node.stop(), distrusted)
        self._at_once(lambda node: node.start(), distrusted)
        self._wait_whole()

    # --- faults: each by its name ------------------------------------------------------------

    @contextmanager
    def split(self, node: ClusterNode) -> Iterator[None]:
        """Part *node* from the others, and end their connections as a lost wire does at last.

        Without the latter nobody would notice a short one. Nodes only find each other again when
        somebody asks; the broker's own queues do so at once.
        """
        node.on.cut_peers()
        others = [each for each in self.nodes if each is not node and each.running]
        for here, there in [(node, other) for other in others] + [(o, node) for o in others]:
            here.evaluate(f"erlang:disconnect_node('{there.name}').")
        try:
            yield
        finally:
            node.on.cut_peers(is_cut=False)

    def leader(self, queue: str, vhost: str) -> ClusterNode:
        """Return the node that leads a quorum queue; waits until there is one."""
        name, found = _ra(queue, vhost), list[str]()

        def is_known() -> bool:
            for node in self.nodes:
                if node.running and not found:
                    ask = f"element(3, ra:members({{'{name}', node()}}, 2000))."
                    with suppress(ServerFailedError):  # nobody leads, or not here
                        found.extend(_atoms(node.evaluate(ask)))
            return bool(found)

        wait_until(is_known, what=f"nobody leads {queue}")
        return self._named(found[0])

    def transfer(self, queue: str, vhost: str, to: ClusterNode) -> None:
        """Make *to* the leader of a quorum queue."""
        name = _ra(queue, vhost)

        def is_led() -> bool:
            now = self.leader(queue, vhost)
            if now is not to:
                here, there = f"{{'{name}', node()}}", f"{{'{name}', '{to.name}'}}"
                now.evaluate(f"ra:transfer_leadership({here}, {there}).")
            return now is to

        wait_until(is_led, what=f"{to.name} does not become the leader of {queue}")

    def quorum_queues(self, vhost: str) -> list[str]:
        """Return the names of the quorum queues of a virtual host."""
        told = self._anybody().api("GET", f"queues/{quote(vhost, safe='')}?columns=name,type")
        return sorted(each["name"] for each in told if each["type"] == "quorum")

    def spread(self, vhost: str) -> None:
        """Let the nodes lead the quorum queues of a virtual host in turn."""
        for number, queue in enumerate(self.quorum_queues(vhost)):
            self.transfer(queue, vhost, self.nodes[number % len(self.nodes)])

    def roll(self, pause_s: float = 2.0) -> None:
        """Restart each node in good order, one after the other."""
        for node in self.nodes:
            node.restart()
            self._wait_whole()
            time.sleep(pause_s)

    # --- looking ----------------------------------------------------------------------------

    def amqp_urls(self, vhost: str = "/") -> list[str]:
        """Return where clients reach a virtual host, one address per node."""
        return [node.amqp_url(vhost) for node in self.nodes]

    def _anybody(self) -> ClusterNode:
        return next(node for node in self.nodes if node.running)

    def _named(self, name: str) -> ClusterNode:
        return next(node for node in self.nodes if node.name == name)

    def _wait_whole(self) -> None:
        wait_until(self.is_whole, seconds=180, what="the nodes are no cluster")

    def _is_connected(self) -> bool:
        """Have each node look for every other one; return whether it sees them."""
        names = ", ".join(f"'{node.name}'" for node in self.nodes)
        ask = f"lists:all(fun(N) -> net_adm:ping(N) =:= pong end, [{names}])."
        return all(node.evaluate(ask) == "true" for node in self.nodes)

    def is_whole(self) -> bool:
        """Return whether every node sees every other one, and no partition."""
        try:
            return all(len(node.peers()) == len(self.nodes) for node in self.nodes) and not any(
                node.partitions() for node in self.nodes
            )
        except ServerFailedError:
            return False

    @staticmethod
    def _at_once(do: Callable[[ClusterNode], object], nodes: Sequence[ClusterNode]) -> None:
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            list(pool.map(do, nodes))


def _ra(queue: str, vhost: str) -> str:
    """Return the name that a quorum queue has as a process."""
    return f"{'%2F' if vhost == '/' else vhost}_{queue}"


def _atoms(told: str) -> list[str]:
    return re.findall(r"rabbit@[0-9.]+", told)
