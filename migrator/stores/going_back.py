"""Rows that go back to several places, of which some may be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from migrator.errors import SomeGone, SourceGone


def returned(sources: Iterable[str], put_back: Callable[[str], int]) -> int:
    """Return how many rows *put_back* has put back, to all *sources* together.

    Raises:
        SomeGone: A source is gone; the others had their turn all the same.
    """
    back, gone = 0, list[SourceGone]()
    for source in sources:
        try:
            back += put_back(source)
        except SourceGone as exc:
            gone.append(exc)
    if gone:
        raise SomeGone(gone, back=back) from gone[0]
    return back
