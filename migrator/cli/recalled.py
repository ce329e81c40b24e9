"""How a walk through the levels is asked for and watched: `recall`, `rollback`, `db adopt`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Final

import typer

from migrator.cli.output import console, say
from migrator.cli.session import duration, some_time
from migrator.delays.walk import WalkProgress, WalkTerms
from migrator.recall import rules

_TELL_EVERY_S: Final = 5.0
"""How often a line says how far it is, where nobody sits at a terminal."""

Margin = Annotated[
    str, typer.Option(metavar="DURATION", help="Leave to the broker what is due within this.")
]
Hold = Annotated[
    str, typer.Option(metavar="DURATION", help="Hold messages of others no longer than this.")
]
Deepest = Annotated[int, typer.Option(metavar="N", help="Refuse when a level holds more messages.")]
MARGIN: Final = f"{rules.MARGIN // timedelta(minutes=1)}m"
HOLD: Final = "20s"
DEEPEST: Final = 200_000


def terms_of(margin: str, hold: str, deepest: int) -> WalkTerms:
    """Return the options as values.

    Raises:
        ConfigError: One is no duration, or nothing is to be held for any time.
    """
    return WalkTerms(
        margin=duration("--margin", margin), hold=some_time("--hold", hold), deepest=deepest
    )


@contextmanager
def watched() -> Iterator[Callable[[WalkProgress], None]]:
    """Show how far it is: a line at a terminal, else one now and then."""
    began_s = time.monotonic()
    if sys.stderr.isatty():
        with console(sys.stderr).status("recalling") as line:
            yield lambda found: line.update(progress_line(found, time.monotonic() - began_s))
        return
    told_s = began_s

    def tell(found: WalkProgress) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= _TELL_EVERY_S:
            told_s = now_s
            say(progress_line(found, now_s - began_s))

    yield tell


def progress_line(found: WalkProgress, took_s: float) -> str:
    """Return in one line how far a recall is."""
    rate = found.seen / max(took_s, 0.001)
    return (
        f"recalling: level {found.level:02d}, {found.seen} messages seen, "
        f"{found.restored} rows restored, {rate:.0f} messages/s"
    )
