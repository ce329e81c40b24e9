"""A service manager that only listens: systemd's side of the notify protocol, on a real socket."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Self


class ServiceManager:
    """Notes every message with the time at which it came."""

    def __init__(self, address: Path | str) -> None:
        """Listen at *address*: a file, or ``@name`` for an abstract socket."""
        self.address = str(address)
        self.heard: list[tuple[float, str]] = []
        """Monotonic seconds, and the message."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address.replace("@", "\0", 1))
        self._socket.settimeout(0.05)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="service-manager")

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and close the socket."""
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def messages(self, beginning: str = "") -> list[str]:
        """Return what was heard so far that begins in this way, oldest first."""
        return [text for _, text in tuple(self.heard) if text.startswith(beginning)]

    def times_s(self, message: str) -> list[float]:
        """Return when *message* was heard."""
        return [at_s for at_s, text in tuple(self.heard) if text == message]

    def _listen(self) -> None:
        while True:
            try:
                message = self._socket.recv(4096).decode()
            except TimeoutError:
                if self._ended.is_set():
                    return  # all that was sent before the end is heard
                continue
            self.heard.append((time.monotonic(), message))
