"""What belongs to Erlang and not to RabbitMQ: its port mapper, and asking a node that runs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from dev.network import Host
from dev.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailedError,
    ServerMissingError,
    free_port,
)

_USUAL_PORT = 4369
_TOLD = re.compile(r"\{ok, (.*)\}", re.DOTALL)


class Epmd(PrivateServer):
    """Erlang's port mapper, on a port of its own so that the machine's epmd is left alone.

    Nodes of one host that shall form a cluster share one. On a host of dev/network.py it listens
    on all addresses.
    """

    def __init__(self, host: Host | None = None) -> None:
        super().__init__("epmd", None, name="epmd")
        self.port = free_port() if host is None else _USUAL_PORT  # the same on all hosts
        self._host = host

    def start(self) -> Self:
        """Start it, unless it runs."""
        if self._process.running:
            return self
        program = shutil.which("epmd") or next(
            map(str, Path("/usr/lib/erlang").glob("erts-*/bin/epmd")), None
        )
        if program is None:
            raise ServerMissingError("Erlang is not installed here (epmd was not found)")
        command = [program, "-port", str(self.port)]
        if self._host is None:
            command, address = [*command, "-address", LOOPBACK], LOOPBACK
        else:
            command, address = self._host.namespace.enter(command), self._host.address
        self._process.start(command, env=os.environ, cwd=self.data_dir)
        self._process.wait_ready(lambda: accepts(self.port, address))
        return self


def can_evaluate() -> bool:
    """Return whether the program that ``evaluate`` needs is here; not all packages bring it."""
    return shutil.which("erl_call") is not None


def evaluate(
    expression: str,
    *,
    node: str,
    cookie: str,
    environment: Mapping[str, str],
    host: Host | None = None,
) -> str:
    """Have *node* evaluate Erlang that ends in a full stop; return the value as it is printed.

    It takes 20 ms; ``rabbitmqctl`` takes one to two seconds.

    Raises:
        ServerFailedError: The node cannot be asked, or says no.
    """
    command = ["erl_call", "-R", "-e", "-n", node, "-c", cookie]
    done = subprocess.run(
        command if host is None else host.namespace.enter(command),
        input=f"{expression}\n",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    told = _TOLD.fullmatch(done.stdout.strip())
    if done.returncode or told is None:
        raise ServerFailedError(f"erl_call {expression}: {done.stderr or done.stdout}")
    return told.group(1)


def accepts(port: int, host: str = LOOPBACK) -> bool:
    """Return whether somebody listens on a port."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
