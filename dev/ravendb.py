"""A private RavenDB 4.1: own port, own data, loopback only. Its licence: docs/how-to/ravendb.md."""

from __future__ import annotations

import http.client
import os
import secrets
from pathlib import Path
from typing import Any, Final, Self

from dev.api import ask
from dev.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailedError,
    ServerMissingError,
    free_port,
)

_FOLDER: Final = Path(__file__).resolve().parent.parent / ".ravendb"


def find_ravendb() -> Path:
    """Return the folder of the program, or raise ``ServerMissingError``."""
    if not (_FOLDER / "stamp").exists():
        raise ServerMissingError("RavenDB is not installed here (dev/test does it, with pip)")
    return _FOLDER


class RavenServer(PrivateServer):
    """One server; what it stored survives ``kill`` and ``start``."""

    def __init__(self, *, data_dir: Path | None = None) -> None:
        self._folder = find_ravendb()
        super().__init__("ravendb", data_dir, name="RavenDB")
        self.port = free_port()
        self.tcp_port = free_port()

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        command = [
            str(self._folder / "dotnet/dotnet"),
            str(self._folder / "server/Raven.Server.dll"),
            f"--ServerUrl={self.url()}",
            f"--ServerUrl.Tcp=tcp://{LOOPBACK}:{self.tcp_port}",
            f"--DataDir={self.data_dir / 'data'}",
            f"--Logs.Path={self.data_dir / 'logs'}",
            "--Logs.Mode=None",
            "--Setup.Mode=None",
            "--License.Eula.Accepted=true",
            "--non-interactive",
        ]
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self._folder / "lib"),  # OpenSSL 1.1
            "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",  # else ICU has to be installed
            "COMPlus_gcServer": "0",  # else it keeps several times the memory
            "COMPlus_EnableDiagnostics": "0",  # else a killed one leaves pipes for a debugger
        }
        self._process.start(command, env=env, cwd=self.data_dir)
        self._process.wait_ready(self._ready)
        return self

    def url(self) -> str:
        """Return where it listens."""
        return f"http://{LOOPBACK}:{self.port}"

    def create_database(self) -> str:
        """Create an empty database; return its name."""
        name = f"test-{secrets.token_hex(6)}"
        self.api("PUT", f"admin/databases?name={name}", {"DatabaseName": name})
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database with all in it."""
        self.api("DELETE", "admin/databases", {"DatabaseNames": [name], "HardDelete": True})

    def api(self, method: str, path: str, body: object = None) -> Any:
        """Ask the server; return the decoded answer."""
        return ask(self.port, method, f"/{path}", body)

    def _ready(self) -> bool:
        """Tell whether a database could be made: that is later than the port opens.

        A new server is no cluster yet, not even one of itself, and is told to become one.
        """
        try:
            self.api("POST", "admin/cluster/bootstrap")
            return bool(self.api("GET", "cluster/topology").get("Leader"))
        except (ServerFailedError, OSError, http.client.HTTPException):
            return False
