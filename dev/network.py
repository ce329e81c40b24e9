"""A small network of our own inside this machine, whose wires can be cut.

Each host is a network namespace with two wires: one to the clients' network, which this process
reaches too, and one to the peers' network, which only the hosts see. Nobody keeps anything: the
namespaces are those of sleeping processes, and with these everything is gone, whoever dies first.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from dev.processes import PrivateServer, ServerMissingError, wait_until

_CLIENTS: Final = "198.18"
_PEERS: Final = "198.19"
"""Both are for tests of networks (RFC 2544): no machine has them."""
_OURS: Final = 254


class Namespace(PrivateServer):
    """A network namespace, alive as long as a process that sleeps in it."""

    def __init__(self) -> None:
        super().__init__("network", None, name="network namespace")

    def start(self) -> Self:
        """Make it, with a loopback interface."""
        command = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep infinity"]
        self._process.start(command, env=os.environ, cwd=self.data_dir)
        self._process.wait_ready(self._has_loopback)
        return self

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return *command* wrapped so that it runs in here; it keeps its process id."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *command]

    def ip(self, *args: str) -> str:
        """Run ``ip`` in here."""
        return _run(self.enter(["ip", *args]))

    def _has_loopback(self) -> bool:
        here, there = Path("/proc/self/ns/net"), Path(f"/proc/{self.pid}/ns/net")
        return here.readlink() != there.readlink() and "UNKNOWN" in self.ip(
            "-brief", "link", "show", "lo"
        )


class Host:
    """One host: its namespace, its addresses, and its two wires."""

    def __init__(self, hub: Namespace, number: int, net: int) -> None:
        self.namespace = Namespace().start()
        self.address = f"{_CLIENTS}.{net}.{number}"
        """Where clients reach it."""
        self.peer_address = f"{_PEERS}.{net}.{number}"
        """Where the other hosts reach it."""
        self._hub = hub
        self._number = number
        for network, address in (("clients", self.address), ("peers", self.peer_address)):
            near, far = f"{network}{number}", network
            there = str(self.namespace.pid)
            hub.ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", there)
            hub.ip("link", "set", near, "master", network, "up")
            self.namespace.ip("address", "add", f"{address}/24", "dev", far)
            self.namespace.ip("link", "set", far, "up")

    def cut_clients(self, *, is_cut: bool = True) -> None:
        """Cut the wire to the clients, or mend it; what is sent meanwhile is lost silently."""
        self._cut("clients", is_cut=is_cut)

    def cut_peers(self, *, is_cut: bool = True) -> None:
        """Cut the wire to the other hosts, or mend it."""
        self._cut("peers", is_cut=is_cut)

    def _cut(self, network: str, *, is_cut: bool) -> None:
        self._hub.ip("link", "set", f"{network}{self._number}", "down" if is_cut else "up")


class Network:
    """Hosts on two switches."""

    def __init__(self, hosts: int) -> None:
        """Make the network.

        Raises:
            ServerMissingError: This user may make none here, or a program is missing.
        """
        check_allowed()
        self._hub = Namespace().start()
        self._net = _unused_net()
        for switch in ("clients", "peers"):
            self._hub.ip("link", "add", switch, "type", "bridge")
            self._hub.ip("link", "set", switch, "up")
        self._join()
        self.hosts = tuple(Host(self._hub, n, self._net) for n in range(1, hosts + 1))

    def _join(self) -> None:
        """Give this machine a wire to the clients' switch."""
        ours, pid = f"mig{self._hub.pid}", str(self._hub.pid)
        _run(["ip", "link", "add", ours, "type", "veth", "peer", "name", "ours", "netns", pid])
        self._hub.ip("link", "set", "ours", "master", "clients", "up")
        _run(["ip", "address", "add", f"{_CLIENTS}.{self._net}.{_OURS}/24", "dev", ours])
        _run(["ip", "link", "set", ours, "up"])
        carrier = Path(f"/sys/class/net/{ours}/carrier")
        wait_until(lambda: carrier.read_text().strip() == "1", what="the wire to the hosts")

    def close(self) -> None:
        """End the namespaces; their wires go with them."""
        for host in self.hosts:
            host.namespace.close()
        self._hub.close()


def check_allowed() -> None:
    """Raise ``ServerMissingError`` where no network can be made, with the reason."""
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        raise ServerMissingError(f"a network of hosts needs the programs {', '.join(missing)}")
    if os.geteuid() != 0:
        raise ServerMissingError("a network of hosts can be made by root only")
    script = (
        "ip link add name switch type bridge && ip link add name near type veth peer name far"
        " && ip link set near master switch"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServerMissingError(f"no network of hosts can be made here: {done.stderr.strip()}")


def _unused_net() -> int:
    """Return the third part of addresses that nobody uses here."""
    used = _run(["ip", "-brief", "address"])
    free = [net for net in range(256) if f"{_CLIENTS}.{net}." not in used]
    return random.SystemRandom().choice(free)


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerMissingError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
