"""The private servers in Docker, for machines where their programs cannot be installed.

Nobody has run this yet: it was written on a machine without Docker. The interface is that of
``RabbitNode`` and ``PostgresServer``; ports are published on the loopback interface only, and data
lives in a volume that goes with the server (a ``data_dir`` holds only settings and logs).
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dev.postgres import STOP_SIGNALS, PostgresServer, RestartMode
from dev.processes import LOOPBACK, ServerFailedError, ServerProcess
from dev.rabbit import RabbitNode

RABBITMQ_IMAGE: Final = os.environ.get("MIGRATOR_RABBITMQ_IMAGE", "rabbitmq:3.13-management")
POSTGRES_IMAGE: Final = os.environ.get("MIGRATOR_POSTGRES_IMAGE", "postgres:16")


def docker_works() -> bool:
    """Whether there is a Docker that answers."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


class _Container:
    """One container and the volume with its data; both carry the same name."""

    def __init__(self) -> None:
        self.name = f"migrator-{secrets.token_hex(4)}"

    def run(
        self,
        process: ServerProcess,
        image: str,
        *command: str,
        ports: Sequence[int],
        data: str,
        options: Sequence[str] = (),
    ) -> None:
        """Run the image in the foreground; TERM for the client is TERM for the server."""
        published = [f"--publish={LOOPBACK}:{port}:{port}" for port in ports if port]
        line = ["docker", "run", "--rm", f"--name={self.name}", f"--hostname={self.name}"]
        line += [f"--volume={self.name}:{data}", *published, *options, image, *command]
        process.start(line, env=os.environ, cwd=process.log.parent, death="TERM")

    def execute(self, *command: str, options: Sequence[str] = ()) -> str:
        """Run a command in the container; return what it printed."""
        return _docker("exec", *options, self.name, *command)

    def send(self, number: signal.Signals, process: ServerProcess) -> None:
        """Send a signal to the server, and wait for the client to notice its end."""
        if process.running:
            _docker("kill", f"--signal={number.name}", self.name)
            process.wait(60)
            process.kill()

    def remove_data(self) -> None:
        """Remove the volume."""
        subprocess.run(
            ["docker", "volume", "rm", "-f", self.name], capture_output=True, check=False
        )


def _docker(*args: str) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerFailedError(f"docker {args[0]}: {done.stderr or done.stdout}")
    return done.stdout


class DockerRabbitNode(RabbitNode):
    """A RabbitMQ node in a container. Cannot be part of a cluster."""

    _listen_on = "0.0.0.0"  # noqa: S104 - inside the container; published on the loopback only

    def __init__(self, **options: Any) -> None:
        self._container = _Container()
        super().__init__(**options)

    def stop(self) -> None:
        """Let the node end in good order."""
        self._container.send(signal.SIGTERM, self._process)

    def kill(self) -> None:
        """``kill -9``."""
        self._container.send(signal.SIGKILL, self._process)

    def close(self) -> None:
        """End the node at once and remove its data."""
        super().close()
        self._container.remove_data()

    def evaluate(self, expression: str) -> str:
        """Evaluate Erlang in the node, up to its full stop; return the value as it is printed."""
        return self.ctl("eval", expression).strip()

    def ctl(self, *args: str) -> str:
        """Run ``rabbitmqctl`` in the container; return what it printed."""
        return self._container.execute("rabbitmqctl", "--silent", *args)

    def _check_installed(self) -> None:
        """Docker brings the programs."""

    def _config(self) -> list[str]:
        return [*super()._config(), "loopback_users = none"]

    def _launch(self) -> None:
        etc = Path("/etc/rabbitmq")
        mounts = {
            self.data_dir / "rabbitmq.conf": etc / "conf.d" / "90-migrator.conf",
            self.data_dir / "enabled_plugins": etc / "enabled_plugins",
        }
        if self._tls:
            mounts |= {file: file for file in (self._tls.ca, self._tls.cert, self._tls.key)}
        self._container.run(
            self._process,
            RABBITMQ_IMAGE,
            ports=(self.amqp_port, self.management_port, self.amqps_port),
            data="/var/lib/rabbitmq",
            options=[f"--volume={source}:{target}:ro" for source, target in mounts.items()],
        )


class DockerPostgresServer(PostgresServer):
    """A PostgreSQL server in a container."""

    def __init__(self, **options: Any) -> None:
        self._container = _Container()
        super().__init__(**options)
        self._settings["listen_addresses"] = "*"  # inside; published on the loopback only
        del self._settings["unix_socket_directories"]

    def stop(self, mode: RestartMode = "fast") -> None:
        """End the server; ``immediate`` leaves it as a crash would."""
        self._container.send(STOP_SIGNALS[mode], self._process)

    def kill(self) -> None:
        """``kill -9``."""
        self._container.send(signal.SIGKILL, self._process)

    def close(self) -> None:
        """End the server at once and remove its data."""
        super().close()
        self._container.remove_data()

    def _check_installed(self) -> None:
        """Docker brings the programs."""

    def _launch(self) -> None:
        self._container.run(
            self._process,
            POSTGRES_IMAGE,
            "postgres",
            *self._options(),
            ports=(self.port,),
            data="/var/lib/postgresql/data",
            options=["--env=POSTGRES_HOST_AUTH_METHOD=trust"],
        )

    def _run(self, program: str, *args: str) -> str:
        variables = {"PGHOST": LOOPBACK, "PGPORT": str(self.port), "PGUSER": self.user}
        options = [f"--env={name}={value}" for name, value in variables.items()]
        return self._container.execute(program, *args, options=options)
