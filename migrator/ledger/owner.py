"""Who holds a lease: a name that tells whether its process is surely gone.

A lease of a process on another machine can only be waited for. One of a dead process on *this*
machine, in the same process namespace, can be taken at once: the kernel has closed its sockets.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path


def current_owner() -> str:
    """Return the name of this process: ``host/namespace/pid/start/random``; no spaces."""
    return f"{_place()}/{os.getpid()}/{_started(os.getpid())}/{secrets.token_hex(3)}"


def is_surely_dead(owner: str) -> bool:
    """Return True only when *owner* ran here and its process no longer exists."""
    place, pid, started = _parts(owner)
    if place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)  # asks, sends nothing; says more than /proc, which may be hidden
    except ProcessLookupError:
        return True
    except OSError:
        return False
    now = _started(int(pid))
    return bool(started and now) and now != started


def _parts(owner: str) -> tuple[str, str, str]:
    """Return place, pid and start of *owner*; empty ones when it is no name of ours."""
    fields = owner.rsplit("/", 3)
    if len(fields) != 4:
        return "", "", ""
    place, pid, started, _ = fields
    return place, pid, started


def _place() -> str:
    """Return what two processes share when they can see each other: host, boot, namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id")[:8]
    try:
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}-{boot}/{namespace}"


def _started(pid: int) -> str:
    """Return when *pid* was started, in clock ticks since boot; empty when it does not exist."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields or fields[0] in "ZX":
        return ""
    return fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
