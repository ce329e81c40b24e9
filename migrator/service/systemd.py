"""What the service manager is told of the workers, and when, by systemd's protocol.

Rules:

* without a manager nothing happens; one that does not listen never holds up or ends our work;
* READY comes when the workers run, so after every check; a standby is ready as well;
* a sign of life is sent only while every worker's loop goes on: one that hangs stops it;
* while draining more time is asked for, again and again, and by the same rule.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from migrator.service.worker import Stop, Worker

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.0
"""A manager whose socket is full is waited for so long."""
_LOOK_EVERY_S: Final = 0.25
_SIGNS_PER_INTERVAL: Final = 4
_EXTENSION_US: Final = 60_000_000
_EXTEND_EVERY_S: Final = 5.0
_HUNG_AFTER_S: Final = 180.0
"""Without a watchdog, a worker may be silent for so long before no more time is asked for."""


class ServiceManager:
    """Whoever started us and wants to know how we are; maybe nobody."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._is_deaf = False
        self.is_there = self._address is not None
        self.watchdog_s = _watchdog_s(environ) if self._address else None
        """It ends us when we are silent for so long; None: it does not."""

    def tell(self, message: str) -> None:
        """Send one datagram in the words of the protocol; logs once that nobody listens."""
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_PATIENCE_S)
                sender.sendto(message.encode(), self._address)
        except OSError as exc:
            if not self._is_deaf:
                _log.warning(
                    "the service manager could not be notified",
                    extra={"action": "notify_failed", "error": str(exc)},
                )
            self._is_deaf = True
        else:
            self._is_deaf = False


def _address(name: str) -> str | None:
    """Return *name* as the kernel takes it; None when it is nothing we can send to."""
    if name.startswith("@"):
        return "\0" + name[1:]  # an abstract socket, which is no file
    return name if name.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return within which time a sign of life is wanted from this very process."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return None
    is_number = microseconds.isascii() and microseconds.isdigit()
    return int(microseconds) / 1e6 if is_number and int(microseconds) else None


class Supervision:
    """Tells one service manager about one process; the main thread calls it."""

    def __init__(self, manager: ServiceManager, workers: Iterable[Worker], stop: Stop) -> None:
        self._manager = manager
        self._workers = workers
        self._stop = stop
        self._interval_s = manager.watchdog_s
        self._next_sign_s = float("-inf")
        self._next_extension_s = float("-inf")
        self.has_begun = False
        """The work has begun; never false again."""
        self._is_stopping = False
        self._is_hung = False

    @property
    def look_every_s(self) -> float:
        """How often ``look`` is to be called."""
        if self._interval_s is None:
            return _LOOK_EVERY_S
        return min(_LOOK_EVERY_S, self._interval_s / (2 * _SIGNS_PER_INTERVAL))

    @property
    def wants_status(self) -> bool:
        """Whether anybody is told what goes on."""
        return self._manager.is_there

    @property
    def silence_limit_s(self) -> float:
        """A worker that was silent for so long hangs."""
        return self._interval_s or _HUNG_AFTER_S

    def begin(self) -> None:
        """Say that the work has begun."""
        self.has_begun = True
        self._manager.tell("READY=1")
        self.status("working")

    def look(self) -> None:
        """Tell what is to be told now."""
        if self._stop.draining.is_set():
            self.end()
        if not self._manager.is_there or not self._all_go_on():
            return
        now_s = time.monotonic()
        if self._interval_s is not None and now_s >= self._next_sign_s:
            self._next_sign_s = now_s + self._interval_s / _SIGNS_PER_INTERVAL
            self._manager.tell("WATCHDOG=1")
        if self._is_stopping and now_s >= self._next_extension_s:
            self._next_extension_s = now_s + _EXTEND_EVERY_S
            self._manager.tell(f"EXTEND_TIMEOUT_USEC={_EXTENSION_US}")

    def status(self, text: str) -> None:
        """Say what goes on; from any thread."""
        said = " ".join(text.split())
        self._manager.tell(f"STATUS={'stopping: ' if self._is_stopping else ''}{said}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Say that settings are read anew, and at the end that this is over."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._manager.tell(f"RELOADING=1\nMONOTONIC_USEC={now_us}")
        try:
            yield
        finally:
            self._manager.tell("READY=1")

    def end(self) -> None:
        """Say that the end has begun, once."""
        if not self._is_stopping:
            self._is_stopping = True
            self._manager.tell("STOPPING=1")
            self.status("finishing the current batches")

    def _all_go_on(self) -> bool:
        limit_s = self.silence_limit_s
        hung = [worker.name for worker in self._workers if worker.silent_s >= limit_s]
        if hung and not self._is_hung:
            _log.error(
                "a thread hangs; the systemd watchdog is no longer fed",
                extra={"action": "worker_hangs", "workers": hung, "silent_s": round(limit_s, 1)},
            )
        self._is_hung = bool(hung)
        return not hung
