"""Looking through the broker for what a database that failed over does not know any more.

Rules of this file: nothing is taken out of a level; all goes back with its time unchanged. What is
not seen to its end proves nothing, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.errors import PreflightRefused
from migrator.failover.rules import SeenRow
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import MessageTag, UnknownTag, parse_tag, row_tag
from migrator.nservicebus.timeouts import BITS, TimeoutId
from migrator.recall.work import RecallProgress, RecallTerms, demand_shallow

_CHUNK: Final = 500


def seen_in_levels(
    levels: Levels,
    *,
    ledger_id: str,
    terms: RecallTerms,
    guard: Callable[[], None],
    progress: Callable[[RecallProgress], None],
) -> Collection[SeenRow]:
    """Return every row of the ledger whose message waits in a level, highest level first.

    Raises:
        PreflightRefused: A level is too deep, or was not seen to its end.
    """
    waiting, found, seen = levels.ready(), set[SeenRow](), 0
    demand_shallow(waiting, terms.deepest)
    limits = ScanLimits(hold_s=terms.hold.total_seconds())
    for level in range(BITS - 1, -1, -1):
        if level not in waiting:
            continue
        for message in whole(levels.scan(level, limits), f"level {level:02d}"):
            guard()
            seen += 1
            if (row := _row(message, ledger_id)) is not None:
                found.add(row)
        progress(RecallProgress(level=level, seen=seen, restored=0))
    return found


def whole(
    scan: LevelScan, what: str, *, may_go: Callable[[LevelMessage], bool] = lambda _message: False
) -> Iterator[LevelMessage]:
    """Yield each message of a queue; those that *may_go* are acknowledged, the others go back.

    Raises:
        PreflightRefused: It was not seen to its end.
    """
    try:
        while found := scan.receive(at_most=_CHUNK):
            yield from found
            scan.acknowledge(each.tag for each in found if may_go(each))
    finally:
        scan.close()
    if scan.end is not ScanEnd.EMPTY:
        raise PreflightRefused(
            f"{what} was not seen to its end: it holds too much for --hold, or somebody else "
            "consumes it; nothing was changed"
        )


def own_tag(message: LevelMessage, ledger_id: str) -> MessageTag | None:
    """Return the tag of a message of our own queues; None: it is somebody else's."""
    try:
        tag = parse_tag(message.app_id)
    except UnknownTag:
        return None
    return tag if tag.ledger_id == ledger_id else None


def timeout_of(message: LevelMessage) -> TimeoutId | None:
    """Return which timeout a message is about."""
    told = message.headers.get(RELATED_TO_TIMEOUT_ID)
    return TimeoutId(told) if isinstance(told, str) and told else None


def _row(message: LevelMessage, ledger_id: str) -> SeenRow | None:
    headers: Mapping[str, object] = message.headers
    row = row_tag(message.app_id, headers.get(RELATED_TO_TIMEOUT_ID), ledger_id=ledger_id)
    tag = own_tag(message, ledger_id)
    if row is None or tag is None:
        return None
    return SeenRow(row=row, attempt=tag.attempt.number)
