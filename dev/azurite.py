"""A private Azurite, Microsoft's emulator of Azure Storage: own ports, own data, loopback only."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Final, Self

from dev.processes import LOOPBACK, PrivateServer, ServerMissingError, free_port

_PROGRAM: Final = Path(__file__).resolve().parent.parent / (
    ".azurite/node_modules/azurite/dist/src/azurite.js"
)
ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The emulator's own, the same everywhere and documented by Microsoft: no secret."""


def find_azurite() -> tuple[str, Path]:
    """Return Node.js and the program, or raise ``ServerMissingError``."""
    node = shutil.which("node")
    if node is None:
        raise ServerMissingError("Node.js is not installed here (no program named node was found)")
    if not _PROGRAM.exists():
        raise ServerMissingError("Azurite is not installed here (dev/test does it, with npm)")
    return node, _PROGRAM


class AzuriteServer(PrivateServer):
    """One emulator of blobs and tables; what it stored survives ``kill`` and ``start``."""

    def __init__(self, *, data_dir: Path | None = None) -> None:
        self._node, self._program = find_azurite()
        super().__init__("azurite", data_dir, name="Azurite")
        self.blob_port = free_port()
        self.queue_port = free_port()
        self.table_port = free_port()

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        command = [self._node, str(self._program), "--silent", "--skipApiVersionCheck"]
        command += ["--location", str(self.data_dir / "data"), "--disableTelemetry"]
        for name, port in (
            ("blob", self.blob_port),
            ("queue", self.queue_port),
            ("table", self.table_port),
        ):
            command += [f"--{name}Host", LOOPBACK, f"--{name}Port", str(port)]
        self._process.start(command, env=os.environ, cwd=self.data_dir)
        self._process.wait_ready(self._ready)
        return self

    def url(self) -> str:
        """Return the connection string."""
        return ";".join(
            [
                "DefaultEndpointsProtocol=http",
                f"AccountName={ACCOUNT}",
                f"AccountKey={_KEY}",
                f"BlobEndpoint=http://{LOOPBACK}:{self.blob_port}/{ACCOUNT}",
                f"TableEndpoint=http://{LOOPBACK}:{self.table_port}/{ACCOUNT}",
            ]
        )

    def _ready(self) -> bool:
        for port in (self.blob_port, self.table_port):
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex((LOOPBACK, port)) != 0:
                    return False
        return True
