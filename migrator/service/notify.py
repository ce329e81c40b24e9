"""What a service manager is told, by systemd's protocol: one datagram per message.

Rules: without a manager nothing happens; a manager that does not listen never holds up or ends
our work; a text is one line, because lines are what the protocol is made of.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.0
"""A manager whose socket is full is waited for so long."""


class ServiceManager:
    """Whoever started us and wants to know how we are; maybe nobody."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Read where it listens; nothing is sent yet."""
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._is_deaf = False
        self.is_there = self._address is not None
        self.watchdog = _watchdog(environ) if self._address else None
        """It ends us when we are silent for so long; None: it does not."""

    def ready(self) -> None:
        """Say that the start is over."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """Say that settings are read anew; ``ready`` follows when that is over."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """Say that the work goes on."""
        self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Say in one line what is going on, for people."""
        self._tell(f"STATUS={' '.join(text.split())}")

    def extend(self, span: timedelta) -> None:
        """Ask not to be cut off within *span* from now."""
        self._tell(f"EXTEND_TIMEOUT_USEC={span // timedelta(microseconds=1)}")

    def _tell(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_PATIENCE_S)
                sender.sendto(message.encode(), self._address)
        except OSError as exc:
            self._complain(exc)
        else:
            self._is_deaf = False

    def _complain(self, exc: OSError) -> None:
        """Log once that nobody listens, until somebody does again."""
        if self._is_deaf:
            return
        self._is_deaf = True
        _log.warning(
            "the service manager could not be told how this process is",
            extra={"action": "notify_failed", "error": str(exc)},
        )


def _address(name: str) -> str | None:
    """Return *name* as the kernel takes it; None when it is nothing we can send to."""
    if name.startswith("@"):
        return "\0" + name[1:]  # an abstract socket, which is no file
    return name if name.startswith("/") else None


def _watchdog(environ: Mapping[str, str]) -> timedelta | None:
    """Return within which time a sign of life is wanted from this very process."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return None
    if not (microseconds.isascii() and microseconds.isdigit() and int(microseconds)):
        return None
    return timedelta(microseconds=int(microseconds))
