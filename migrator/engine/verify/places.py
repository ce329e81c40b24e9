"""Where timeouts were seen: eight bytes each, because there may be millions."""

from __future__ import annotations

from array import array
from typing import Final

from migrator.domain.verification import Place

_PAGE: Final = 1024
"""Ids that share a page; the ledger gives ids in order, so pages fill."""
_LEVEL_BITS: Final = 5


class Places:
    """Remembers one place per id of the ledger."""

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
        return Place(level=packed & ((1 << _LEVEL_BITS) - 1), delay_s=packed >> _LEVEL_BITS)

    def add(self, row: int, place: Place) -> None:
        """Remember that the timeout with the ledger's id *row* was seen at *place*."""
        page = self._pages.get(row // _PAGE)
        if page is None:
            page = self._pages[row // _PAGE] = array("Q", bytes(8 * _PAGE))
        page[row % _PAGE] = 1 + (place.delay_s << _LEVEL_BITS | place.level)
