"""The geometry of pictures: counts go in, places on a scale of 0 to 100 come out.

A picture never hides what is there: whatever is counted gets a mark, however little it is beside
the rest. That makes it a picture; the numbers stand next to the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from migrator.nservicebus.timeouts import BITS
from migrator.text import span_words

WHOLE: Final = 100.0
_LEAST: Final = 0.8
"""Width of the smallest mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A number in a bar."""

    kind: str
    """Names the colour."""
    label: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A share in its place."""

    share: Share
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar with its name and its numbers."""

    label: str
    count: int | None
    """None: not known."""
    pieces: Sequence[Piece]
    remark: str = ""


def stacked(shares: Iterable[Share], *, most: int) -> Sequence[Piece]:
    """Return the shares that are not 0 side by side, where *most* fills the whole width."""
    present = [share for share in shares if share.count > 0]
    widths = [max(_LEAST, WHOLE * share.count / most) for share in present]
    shrink = min(1.0, WHOLE / sum(widths)) if widths else 1.0
    pieces, x = [], 0.0
    for share, width in zip(present, widths, strict=True):
        pieces.append(Piece(share=share, x=round(x, 2), width=round(width * shrink, 2)))
        x += width * shrink
    return pieces


def bars(rows: Iterable[tuple[str, Sequence[Share]]]) -> Sequence[Bar]:
    """Return one bar for each row, all on the same scale."""
    listed = [(label, shares, sum(share.count for share in shares)) for label, shares in rows]
    most = max((total for _, _, total in listed), default=0) or 1
    return [
        Bar(label=label, count=total, pieces=stacked(shares, most=most))
        for label, shares, total in listed
    ]


def legend(rows: Iterable[Bar]) -> Mapping[str, str]:
    """Return the label of each kind that is to be seen in *rows*, by kind."""
    return {piece.share.kind: piece.share.label for row in rows for piece in row.pieces}


def level_bars(
    levels: Mapping[int, Sequence[Share]], *, counts: Mapping[int, int | None] | None = None
) -> Sequence[Bar]:
    """Return a bar for each of the 28 levels, highest first.

    Args:
        levels: What is drawn; nothing on a level that is missing.
        counts: What stands beside the bars, where it is not the sum of what is drawn.
    """
    numbers = range(BITS - 1, -1, -1)
    drawn = bars((f"{level:02d}", levels.get(level, ())) for level in numbers)
    known = counts or {}
    return [
        replace(bar, count=known.get(level, bar.count), remark=span_words(2**level))
        for level, bar in zip(numbers, drawn, strict=True)
    ]
