"""The delay levels drawn as a ladder: one rung per level, filled with what waits on it.

Pure: a ladder goes in, a table comes out; nothing here writes.
"""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from migrator.delays.depths import LevelDepth, LevelDepths, span_text

_RUNG_CHARS: Final = 16
_NOT_KNOWN: Final = "not known"
_HELD: Final = "bold red"
_COLUMNS: Final = ("level", "for delays of", "", "ready", "unacked", "held", "consumers", "")
_NUMBERS: Final = frozenset({"for delays of", "ready", "unacked", "held", "consumers"})


def ladder_table(ladder: LevelDepths) -> Table:
    """Return the ladder as a table, level 27 first, with a last line of sums."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=False)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    most = max((step.known for step in ladder.steps), default=0)
    for step in ladder.steps:
        table.add_row(*_cells(step, most), style="dim" if step.known == 0 else "")
    sums = ladder.totals
    numbers = (sums.ready, sums.unacknowledged, sums.held, sums.consumers)
    table.add_row("", "total", "", *map(_count, numbers), "", style="bold")
    return table


def _cells(step: LevelDepth, most: int) -> list[Text]:
    counts = (step.ready, step.unacknowledged, step.held, step.consumers)
    texts = [_count(count) for count in counts] if step.exists else [Text("")] * len(counts)
    if step.held:
        texts[2].stylize(_HELD)
    return [
        Text(f"{step.level:02d}"),
        Text(f"{span_text(step.wait_s)} … {span_text(step.longest_delay_s)}"),
        _rung(step, most),
        *texts,
        _remark(step),
    ]


def _rung(step: LevelDepth, most: int) -> Text:
    """Return the rung; whatever is there gets a mark, however little it is beside the rest."""
    held, unacknowledged, ready = (
        max(1, _RUNG_CHARS * count // most) if count else 0
        for count in (step.held, step.unacknowledged, step.ready)
    )
    held = min(held, _RUNG_CHARS)
    unacknowledged = min(unacknowledged, _RUNG_CHARS - held)
    ready = min(ready, _RUNG_CHARS - held - unacknowledged)
    rung = Text("├")
    rung.append("█" * ready, style="green")
    rung.append("▒" * unacknowledged, style="yellow")
    rung.append("▓" * held, style=_HELD)
    rung.append("─" * (_RUNG_CHARS + 1 - len(rung)))
    rung.append("┤")
    return rung


def _remark(step: LevelDepth) -> Text:
    if not step.exists:
        return Text("missing", style=_HELD)
    if step.may_freeze:
        return Text("may stand still", style=_HELD)
    return Text("not passed on", style=_HELD) if step.held else Text("")


def _count(count: int | None) -> Text:
    return Text(_NOT_KNOWN if count is None else f"{count:,}".replace(",", " "))
