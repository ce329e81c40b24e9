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

from dev.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailedError,
    ServerMissingError,
    free_port,
)

_TOLD = re.compile(r"\{ok, (.*)\}", re.DOTALL)


class Epmd(PrivateServer):
    """Erlang's port mapper, on a port of its own so that the machine's epmd is left alone.

    Nodes that shall form a cluster share one.
    """

    def __init__(self) -> None:
        super().__init__("epmd", None, name="epmd")
        self.port = free_port()

    def start(self) -> Self:
        """Start it, unless it runs."""
        if self._process.running:
            return self
        program = shutil.which("epmd") or next(
            map(str, Path("/usr/lib/erlang").glob("erts-*/bin/epmd")), None
        )
        if program is None:
            raise ServerMissingError("Erlang is not installed here (epmd was not found)")
        command = [program, "-port", str(self.port), "-address", LOOPBACK]
        self._process.start(command, env=os.environ, cwd=self.data_dir)
        self._process.wait_ready(lambda: accepts(self.port))
        return self


def can_evaluate() -> bool:
    """Return whether the program that ``evaluate`` needs is here; not all packages bring it."""
    return shutil.which("erl_call") is not None


def evaluate(expression: str, *, node: str, cookie: str, environment: Mapping[str, str]) -> str:
    """Have *node* evaluate Erlang that ends in a full stop; return the value as it is printed.

    It takes 20 ms; ``rabbitmqctl`` takes one to two seconds.

    Raises:
        ServerFailedError: The node cannot be asked, or says no.
    """
    done = subprocess.run(
        ["erl_call", "-R", "-e", "-n", node, "-c", cookie],
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


def accepts(port: int) -> bool:
    """Return whether somebody listens on a port of the loopback interface."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
