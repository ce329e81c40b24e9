"""What `recall` and `rollback` share: how a recall is asked for, watched, and told about."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

import typer

from migrator.app import App
from migrator.app.recall import RecallWiring
from migrator.cli.output import console, say
from migrator.cli.session import duration, some_time
from migrator.recall.rules import RecallForecast, RecallOutcome, RecallScope
from migrator.recall.run import recall
from migrator.recall.work import Recalled, RecallProgress, RecallTerms

_TELL_EVERY_S: Final = 5.0
"""How often a line says how far it is, where nobody sits at a terminal."""

Margin = Annotated[
    str, typer.Option(metavar="DURATION", help="Leave to the broker what is due within this.")
]
Hold = Annotated[
    str, typer.Option(metavar="DURATION", help="Hold messages of others no longer than this.")
]
Deepest = Annotated[int, typer.Option(metavar="N", help="Refuse when a level holds more messages.")]
MARGIN: Final = "1m"
HOLD: Final = "20s"
DEEPEST: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """What a recall was to find, and what it found."""

    expected: RecallForecast
    done: Recalled | None
    """None: nothing was taken out of the levels, because nobody asked for it or none is there."""
    not_found: int = 0
    """Rows that should be in the levels, and were met nowhere."""

    @property
    def is_whole(self) -> bool:
        """Whether everything that was to come back is back."""
        return self.done is None or (self.done.is_whole and not self.not_found)

    @property
    def document(self) -> dict[str, object]:
        """The same as plain values for JSON."""
        found: dict[str, object] = {"expected": forecast_document(self.expected)}
        if self.done is not None:
            found["found"] = self.done.counts
            found["not_found"] = self.not_found
            found["unfinished_levels"] = list(self.done.unfinished)
        return found


def terms_of(margin: str, hold: str, deepest: int) -> RecallTerms:
    """Return the options as values.

    Raises:
        ConfigError: One is no duration, or nothing is to be held for any time.
    """
    return RecallTerms(
        margin=duration("--margin", margin), hold=some_time("--hold", hold), deepest=deepest
    )


def foretold(app: App, scope: RecallScope, margin: timedelta) -> RecallForecast:
    """Return what the ledger expects a recall to find; the broker is not asked."""
    now = app.clock.now()
    return RecallWiring(app).recalls.forecast(scope, now=now, not_before=now + margin)


def brought_back(
    app: App, scope: RecallScope, terms: RecallTerms, expected: RecallForecast
) -> WayBack:
    """Recall, telling how far it is; see ``recall.run.recall``."""
    with watched() as progress:
        done = recall(app, scope, terms, progress=progress)
    seen = sum(done.counts[each] for each in _SEEN_AND_LEFT)
    left = foretold(app, scope, terms.margin).in_levels
    return WayBack(expected=expected, done=done, not_found=max(left - seen, 0))


def forecast_document(expected: RecallForecast) -> dict[str, object]:
    """Return a forecast as plain values for JSON."""
    return {
        "in_levels": expected.in_levels,
        "too_near": expected.too_near,
        "left": expected.left,
        "possible_until": expected.possible_until,
        "is_exact": expected.is_exact,
    }


def say_way_back(way: WayBack) -> None:
    """Tell a person about it."""
    expected, done = way.expected, way.done
    say(
        f"by the ledger, {expected.in_levels} are in the levels, {expected.too_near} are due too "
        f"soon to be touched, {expected.left} have left already"
    )
    if expected.possible_until is not None:
        say(f"all of them can come back until {expected.possible_until:%Y-%m-%d %H:%M:%S} UTC")
    if done is None:
        return
    say(f"{done.restored} rows are back in their tables")
    for outcome, text in _REMARKS.items():
        if count := done.outcomes.get(outcome, 0):
            say(f"{count} messages {text}")
    for level in done.unfinished:
        say(
            f"level {level:02d} was not seen to its end: it holds too much for --hold, or somebody "
            "else consumes it; run it again"
        )
    if way.not_found:
        say(
            f"{way.not_found} that the ledger expects were met nowhere; run it again, and see "
            "what `migrator delays verify` says"
        )


_SEEN_AND_LEFT: Final = (
    RecallOutcome.TAKEN,
    RecallOutcome.STORE_GONE,
    RecallOutcome.DIFFERENT,
)
_REMARKS: Final = {
    RecallOutcome.LEFTOVER: "were leftovers of an earlier recall, and are gone now",
    RecallOutcome.TOO_NEAR: "are due too soon and were left to the broker",
    RecallOutcome.TAKEN: "were left: their tables have their ids again",
    RecallOutcome.UNSETTLED: "were left: their batches are not settled (`migrator batch list`)",
    RecallOutcome.STORE_GONE: "were left: the store they came from is gone (the log says which)",
    RecallOutcome.DIFFERENT: "bear our mark but not our content, and were left",
}


# ── while it goes on ────────────────────────────────────────────────────────────────────────────


@contextmanager
def watched() -> Iterator[Callable[[RecallProgress], None]]:
    """Show how far it is: a line at a terminal, else one now and then."""
    began_s = time.monotonic()
    if sys.stderr.isatty():
        with console(sys.stderr).status("recalling") as line:
            yield lambda found: line.update(progress_line(found, time.monotonic() - began_s))
        return
    told_s = began_s

    def tell(found: RecallProgress) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= _TELL_EVERY_S:
            told_s = now_s
            say(progress_line(found, now_s - began_s))

    yield tell


def progress_line(found: RecallProgress, took_s: float) -> str:
    """Return in one line how far a recall is."""
    rate = found.seen / max(took_s, 0.001)
    return (
        f"recalling: level {found.level:02d}, {found.seen} messages seen, "
        f"{found.restored} rows restored, {rate:.0f} messages/s"
    )
