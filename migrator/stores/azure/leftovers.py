"""Time entries whose main entry is gone: remembered, so that they do not stand in the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from migrator.nservicebus.timeouts import TimeoutId

_KEPT_FOR_S: Final = 60.0
"""A timeout manager writes the main entry last, so what looks like a leftover may become whole."""
_MOST: Final = 200_000


class Leftovers:
    """Ids that were found without a main entry in the last minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Remember nothing yet."""
        self._monotonic = monotonic
        self._until_s: dict[TimeoutId, float] = {}

    def add(self, ids: Iterable[TimeoutId]) -> None:
        """Remember *ids* for a while."""
        until_s = self._monotonic() + _KEPT_FOR_S
        if len(self._until_s) > _MOST:
            self._until_s.clear()
        self._until_s.update(dict.fromkeys(ids, until_s))

    def drop(self, ids: Collection[TimeoutId]) -> None:
        """Forget *ids*: they are whole again."""
        for each in ids:
            self._until_s.pop(each, None)

    def __contains__(self, timeout: object) -> bool:
        return self._until_s.get(timeout, 0.0) > self._monotonic()  # type: ignore[call-overload,no-any-return]  # any object may be asked for
