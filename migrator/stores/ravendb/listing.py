"""Decides behind which id the next page of a listing begins, so that no page skips a document.

Pure. A page is asked for behind an id, the *anchor*. RavenDB 3.x, 4.0 and 4.1 look for it, take
the next id where it is gone, and then step over what they found: where somebody has removed the
anchor, a document is left out that nobody has seen. So the anchor is not the last id that came,
but the one before it, and a page counts only when it begins with an id that came already: what
was stepped over is no later than that. Else an earlier anchor is tried, and at last none.
Source: seen on 4.1, and in the published sources of 3.x and 4.0; 5.4, 6.2 and 7.0 compare first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from migrator.stores.ravendb.families import RawDocument

SMALLEST_PAGE: Final = 2
"""A page repeats a document of the one before."""
_FURTHER_BACK: Final = 8
"""How many times further back the next anchor is, where one was removed."""


class DoesNotPageError(ValueError):
    """A page is not behind its anchor: the listing would never end."""


class Listing:
    """How far a listing has come."""

    def __init__(self) -> None:
        """Begin at the beginning."""
        self.is_done = False
        self._came: Sequence[str] = ()
        """The ids of the last page that counted, in order."""
        self._places: Mapping[str, int] = {}
        """Where in it an id is, by the id in lower case, as servers compare."""
        self._back = 1
        self._told = ""
        """The last id that was told, in lower case."""
        self._is_behind = False
        """Whether it went back, and has not come to what was not told yet."""

    @property
    def after(self) -> str | None:
        """The anchor of the next page; None: it begins at the beginning."""
        at = self._anchor
        return self._came[at] if at >= 0 else None

    @property
    def _anchor(self) -> int:
        return len(self._came) - 1 - self._back

    def add(self, page: Sequence[RawDocument]) -> Sequence[RawDocument]:
        """Return what is new on the page behind ``after``; nothing, where it does not count.

        Raises:
            DoesNotPageError: The page begins with its anchor, or before that.
        """
        if self.after is not None and not self._counts(page):
            self._go_back()
            return ()
        self._is_behind |= self.after is None or self._back > 1
        new = [raw for raw in page if raw.id.lower() not in self._places]
        self.is_done = not new and self._back == 1
        self._came = [raw.id for raw in page]
        self._places = {id_.lower(): place for place, id_ in enumerate(self._came)}
        self._back = 1
        return self._untold(page if self._is_behind else new)

    def _counts(self, page: Sequence[RawDocument]) -> bool:
        place = self._places.get(page[0].id.lower()) if page else None
        if place is not None and place <= self._anchor:
            raise DoesNotPageError(f"{page[0].id!r} came twice")
        return place is not None

    def _go_back(self) -> None:
        self._back *= _FURTHER_BACK
        if self._anchor < 0:  # all that is known may be gone
            self._came, self._places, self._back = (), {}, 1

    def _untold(self, found: Sequence[RawDocument]) -> Sequence[RawDocument]:
        if self._is_behind:
            found = [raw for raw in found if raw.id.lower() > self._told]
        if found:
            self._is_behind = False
            self._told = found[-1].id.lower()
        return found
