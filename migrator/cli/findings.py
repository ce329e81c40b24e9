"""What checks found, for people and for programs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from migrator.cli.output import AMBER, RED
from migrator.errors import ExitCode
from migrator.preflight.context import UNREACHABLE, Finding, Level, refusals
from migrator.text import counted, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES: Final = {Level.REFUSED: RED, Level.WARNING: AMBER, Level.OK: "green"}
_WORDS: Final = {Level.NOT_CHECKED: "not checked"}
_ORDER: Final = (Level.REFUSED, Level.WARNING, Level.NOT_CHECKED, Level.OK)


def drawn_findings(findings: Sequence[Finding], *, is_whole: bool) -> Iterator[RenderableType]:
    """Yield what people read of *findings*: the worst first, each with its remedy.

    Checks that merely passed are one line, unless it is to be *is_whole*.
    """
    from rich.table import Table
    from rich.text import Text

    troubled = [f for f in findings if is_whole or f.level is not Level.OK]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "check", "what was found, and what to do"):
        table.add_column(column, overflow="fold")
    for each in sorted(troubled, key=lambda f: _ORDER.index(f.level)):
        text = Text(visible(f"{each.subject}: {each.text}"))
        if each.remedy:
            text.append(f"\n→ {each.remedy}", style="dim")
        table.add_row(
            Text(_WORDS.get(each.level, str(each.level)), style=STYLES.get(each.level, "")),
            Text(each.check),
            text,
        )
    if troubled:
        yield table
    by_check = groupby(sorted(findings, key=attrgetter("check")), key=attrgetter("check"))
    passed = sum(all(f.level is Level.OK for f in found) for _, found in by_check)
    if not is_whole and passed:
        yield Text(f"{counted(passed, 'check')} passed; -v lists them")


def exit_code(findings: Iterable[Finding], served: Collection[str] = ()) -> ExitCode:
    """Return what the process tells its caller about *findings*.

    *served* are endpoints that nothing refuses by themselves.
    """
    found = refusals(findings)
    if {f.check for some in found.values() for f in some} & UNREACHABLE:
        return ExitCode.UNREACHABLE
    if not found:
        return ExitCode.DONE
    return ExitCode.PARTIAL if served and None not in found else ExitCode.PREFLIGHT_REFUSED
