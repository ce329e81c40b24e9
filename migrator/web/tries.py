"""Wrong tokens, counted by address, so that nobody tries many.

Rules of this file: memory is bounded, whoever comes; time is asked of the clock that is given.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

_MOST_ADDRESSES: Final = 256
_HOST_BITS: Final = 64
"""Of an IPv6 address: whoever has one has all of its network."""


@dataclass(slots=True)
class _Window:
    began_s: float
    wrong: int = 0


class Tries:
    """How often each address was wrong within a span of time."""

    def __init__(
        self, *, most: int, span_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Let *most* be wrong from one address within *span_s*, and then none until it is over."""
        self._most = most
        self._span_s = span_s
        self._clock = clock
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long nothing of *address* is looked at, right or wrong; 0: it is."""
        window = self._window(_network(address))
        if window is None or window.wrong < self._most:
            return 0.0
        return window.began_s + self._span_s - self._clock()

    def note_wrong(self, address: str) -> None:
        """Count one more."""
        key = _network(address)
        window = self._window(key)
        if window is None:
            while len(self._windows) >= _MOST_ADDRESSES:
                self._windows.popitem(last=False)
            window = self._windows[key] = _Window(self._clock())
        window.wrong += 1

    def __len__(self) -> int:
        return len(self._windows)

    def _window(self, key: str) -> _Window | None:
        window = self._windows.get(key)
        if window is not None and self._clock() - window.began_s >= self._span_s:
            del self._windows[key]
            return None
        return window


def _network(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(int(parsed) >> _HOST_BITS)
    return str(parsed)
