"""Asking a daemon that a test has started, by its socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx

from dev.processes import PATIENCE_S
from tests.e2e.rig import Rig
from tests.support.documents import HOOKS


def listen(rig: Rig, folder: Path) -> None:
    """Have the daemon, and whoever commands it, use a socket in *folder*."""
    rig.settings |= {"MIGRATOR_WEB__SOCKET": str(folder / "control.sock")}


def listens(rig: Rig) -> bool:
    """Return whether a daemon listens; its socket's file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as asker:
        return asker.connect_ex(rig.settings["MIGRATOR_WEB__SOCKET"]) == 0


def status(rig: Rig) -> dict[str, Any]:
    """Return what the daemon says of itself."""
    with _client(rig) as client:
        found: dict[str, Any] = client.get("/status").raise_for_status().json()
        return found


def jobs(rig: Rig) -> dict[str, Any]:
    """Return what the daemon says of its jobs, by name."""
    return {job["job"]: job for job in status(rig)["jobs"]}


def told(rig: Rig, **order: str) -> dict[str, Any]:
    """Give the daemon a command, and return its answer."""
    with _client(rig) as client:
        answer: dict[str, Any] = client.post("/control", json=order).json()
        return answer


def _client(rig: Rig) -> httpx.Client:
    # loading certificates, which no socket file needs, would take 50 ms each time
    line = httpx.HTTPTransport(
        uds=rig.settings["MIGRATOR_WEB__SOCKET"], verify=False, trust_env=False
    )
    return httpx.Client(
        transport=line,
        base_url="http://daemon",
        timeout=PATIENCE_S,
        event_hooks=HOOKS,
        trust_env=False,
    )


def signals(rig: Rig) -> list[str]:
    """Return why the daemon waits now."""
    return [hold["signal"] for hold in status(rig)["holds"]]


def noted(rig: Rig, kind: str) -> list[dict[str, Any]]:
    """Return the details of all events of a kind in the ledger, oldest first."""
    query = "SELECT detail FROM migrator.event WHERE kind = %s ORDER BY id"
    return [json.loads(detail) for (detail,) in rig.query(query, kind)]
