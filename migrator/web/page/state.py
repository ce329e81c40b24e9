"""How a daemon is, in a line, and why it waits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from migrator.ledger.pause_reasons import Hold, Signal
from migrator.reports.drawing.pages import Tone
from migrator.reports.drawing.texts import span_words
from migrator.web.control_values import Liveness, Readiness
from migrator.web.page.words import SIGNALS
from migrator.web.snapshot import Snapshot

_FEW: Final = 5
"""Of endpoints that are named in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One reason why nothing new is claimed."""

    title: str
    text: str
    since: datetime
    lasts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How it is, in a line."""

    tone: Tone
    title: str
    reasons: Sequence[str] = ()
    waits: Sequence[Wait] = ()


def state_of(snapshot: Snapshot, live: Liveness, ready: Readiness) -> State:
    """Return what is to be said first."""
    waits = [wait_of(hold, snapshot.taken_at) for hold in snapshot.holds if hold.endpoint is None]
    if not live.is_alive:
        silent = [
            f"{name} last went on {span_words(seconds)} ago"
            for name, seconds in sorted(live.silent_s.items(), key=lambda item: -item[1])
        ]
        return State(tone=Tone.BAD, title="Part of it hangs", reasons=silent, waits=waits)
    if not ready.is_ready:
        return _not_ready(list(ready.reasons), waits)
    if waits:
        title = "Paused" if are_all_paused(snapshot) else "Waiting"
        return State(tone=Tone.CARE, title=title, waits=waits)
    if names := sorted({hold.endpoint for hold in snapshot.holds if hold.endpoint is not None}):
        few = ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" * (len(names) > _FEW))
        return State(
            tone=Tone.CARE, title="Running; some endpoints wait", reasons=[f"These wait: {few}"]
        )
    if snapshot.progress.doubtful:
        text = "Of some batches nobody can tell whether the broker has them: see below."
        return State(tone=Tone.CARE, title="Running, with doubts", reasons=[text])
    return State(tone=Tone.GOOD, title="Running")


def are_all_paused(snapshot: Snapshot) -> bool:
    """Return whether an operator has paused everything."""
    return any(h.signal is Signal.PAUSED and h.endpoint is None for h in snapshot.holds)


def _not_ready(reasons: Sequence[str], waits: Sequence[Wait]) -> State:
    if set(reasons) <= {"starting", "ending"}:
        title = "Ending" if "ending" in reasons else "Starting"
        text = "What is claimed is finished; nothing more is claimed."
        told = [text] if "ending" in reasons else []
        return State(tone=Tone.CARE, title=title, reasons=told, waits=waits)
    return State(tone=Tone.BAD, title="Something is wrong", reasons=reasons, waits=waits)


def wait_of(hold: Hold, now: datetime) -> Wait:
    """Return one reason, as of *now*."""
    lasts_s = max(0.0, (now - hold.since).total_seconds())
    return Wait(
        title=SIGNALS[hold.signal],
        text=f"{hold.observed} ({hold.limit})" if hold.limit else hold.observed,
        since=hold.since,
        lasts=span_words(lasts_s),
    )
