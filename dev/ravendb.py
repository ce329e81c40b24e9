"""A private RavenDB: own port, own data, loopback only. Its licence: docs/how-to/ravendb.md."""

from __future__ import annotations

import http.client
import os
import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from dev.raven_parts import DOTNET, FOLDER, MAIN, OLDEST, is_there

_NET_8_CLIENT: Final = "Was expecting handler of type 'HttpClientHandler'"


def find_ravendb(version: str) -> Path:
    """Return the folder of a version's program, or raise ``ServerMissingError``."""
    if not is_there(version) or (version != OLDEST and not is_there(DOTNET)):
        raise ServerMissingError(
            f"RavenDB {version} is not installed here (dev/raven_parts.py fetches it)"
        )
    return FOLDER / version


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificate:
    """What makes a server a secured one: clients without a certificate that it knows are refused.

    It shows itself with an RSA key, and is its own administrator with it.
    """

    ca: Path
    """Who has issued it (PEM)."""
    cert: Path
    key: Path
    pfx: Path
    """Certificate and key, without a password."""

    def context(self) -> ssl.SSLContext:
        """Return what an administrator connects with."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.cert, self.key)
        return context


class RavenServer(PrivateServer):
    """One server; what it stored survives ``kill`` and ``start``."""

    def __init__(
        self,
        *,
        version: str = MAIN,
        data_dir: Path | None = None,
        certificate: ServerCertificate | None = None,
    ) -> None:
        self.version = version
        self._certificate = certificate
        self._folder = find_ravendb(version)
        super().__init__("ravendb", data_dir, name=f"RavenDB {version}")
        self.port = free_port()
        self.tcp_port = free_port()

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        command = [
            *self._program(),
            f"--ServerUrl={self.url()}",
            f"--ServerUrl.Tcp=tcp://{LOOPBACK}:{self.tcp_port}",
            f"--DataDir={self.data_dir / 'data'}",
            f"--Logs.Path={self.data_dir / 'logs'}",
            "--Logs.MinLevel=Off" if self.version >= "7" else "--Logs.Mode=None",
            "--Setup.Mode=None",
            "--License.Eula.Accepted=true",
            "--non-interactive",
            *self._secured(),
        ]
        env = {
            **os.environ,
            **self._runtime(),
            "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",  # else ICU has to be installed
            "COMPlus_gcServer": "0",  # else it keeps several times the memory
            "COMPlus_EnableDiagnostics": "0",  # else a killed one leaves pipes for a debugger
        }
        self._process.start(command, env=env, cwd=self.data_dir)
        self._process.wait_ready(self._ready)
        return self

    def _program(self) -> list[str]:
        if self.version != OLDEST:
            return [str(self._folder / "server/Raven.Server")]
        parts = ("dotnet/dotnet", "server/Raven.Server.dll")
        return [str(self._folder / part) for part in parts]

    def _secured(self) -> list[str]:
        given = self._certificate
        return [] if given is None else [f"--Security.Certificate.Path={given.pfx}"]

    def _runtime(self) -> dict[str, str]:
        """Return what tells .NET where its parts are."""
        if self.version == OLDEST:
            return {"LD_LIBRARY_PATH": str(self._folder / "lib")}  # OpenSSL 1.1
        # 9 runs what was made for 8
        return {"DOTNET_ROOT": str(FOLDER / DOTNET), "DOTNET_ROLL_FORWARD": "Major"}

    def url(self) -> str:
        """Return where it listens."""
        return f"http{'s' if self._certificate else ''}://{LOOPBACK}:{self.port}"

    def create_database(self, **more: object) -> str:
        """Create an empty database, with *more* in its record; return its name."""
        name = f"test-{secrets.token_hex(6)}"
        with self._but_for_calls_of_nodes():
            record = {"DatabaseName": name, **more}
            self.api("PUT", f"admin/databases?name={name}&replicationFactor=1", record)
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database with all in it."""
        with self._but_for_calls_of_nodes():
            self.api("DELETE", "admin/databases", {"DatabaseNames": [name], "HardDelete": True})

    def api(self, method: str, path: str, body: object = None) -> Any:
        """Ask the server; return the decoded answer."""
        tls = None if self._certificate is None else self._certificate.context()
        return ask(self.port, method, f"/{path}", body, tls=tls)

    @contextmanager
    def _but_for_calls_of_nodes(self) -> Iterator[None]:
        """Pass over that the server cannot ask itself by HTTP whether a change has arrived.

        That is how it is with a server made for .NET 8 on .NET 9: its clients of HTTP are of
        another class. The change is made before, and nothing else on a single node needs that.
        """
        try:
            yield
        except ServerFailedError as failed:
            if self.version == OLDEST or _NET_8_CLIENT not in str(failed):
                raise

    def _ready(self) -> bool:
        """Tell whether a database could be made: that is later than the port opens.

        A new server is no cluster yet, not even one of itself, and is told to become one.
        """
        try:
            self.api("POST", "admin/cluster/bootstrap")
            return bool(self.api("GET", "cluster/topology").get("Leader"))
        except (ServerFailedError, OSError, http.client.HTTPException):
            return False
