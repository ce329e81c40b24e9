"""Which timeouts were seen, and where: as small as can be, because there may be millions."""

from __future__ import annotations

from array import array
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.verify.report import Place

_PAGE: Final = 1024
"""Ids that share a page; the ledger gives ids in order, so pages fill."""
_LEVEL_BITS: Final = 5
_PLACE_BITS: Final = _LEVEL_BITS + 1
_GENERATIONS: Final = tuple(DelaysVersion)


class Places:
    """Remembers one place per id of the ledger, in eight bytes."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._pages: dict[int, array[int]] = {}

    def __getitem__(self, row: int) -> Place | None:
        """Return where the timeout with the ledger's id *row* was seen first; None: nowhere."""
        page = self._pages.get(row // _PAGE)
        packed = page[row % _PAGE] if page is not None else 0
        if not packed:
            return None
        packed -= 1
        return Place(
            delays=_GENERATIONS[packed >> _LEVEL_BITS & 1],
            level=packed & ((1 << _LEVEL_BITS) - 1),
            delay_s=packed >> _PLACE_BITS,
        )

    def add(self, row: int, place: Place) -> None:
        """Remember that the timeout with the ledger's id *row* was seen at *place*."""
        page = self._pages.get(row // _PAGE)
        if page is None:
            page = self._pages[row // _PAGE] = array("Q", bytes(8 * _PAGE))
        generation = _GENERATIONS.index(place.delays)
        where = generation << _LEVEL_BITS | place.level
        page[row % _PAGE] = 1 + (place.delay_s << _PLACE_BITS | where)


class Ids:
    """Remembers ids of the ledger, in one bit each."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pages: dict[int, bytearray] = {}

    def __contains__(self, row: int) -> bool:
        """Return whether the ledger's id *row* was added."""
        page = self._pages.get(row // (8 * _PAGE))
        return page is not None and bool(page[row // 8 % _PAGE] >> row % 8 & 1)

    def add(self, row: int) -> None:
        """Remember the ledger's id *row*."""
        page = self._pages.setdefault(row // (8 * _PAGE), bytearray(_PAGE))
        page[row // 8 % _PAGE] |= 1 << row % 8
