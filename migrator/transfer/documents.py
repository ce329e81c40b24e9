"""The JSON documents of messages that are moved to other delays."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.delays.routing import DelaysVersion, suffix_collisions
from migrator.documents import Counts, Document, Part
from migrator.nservicebus.timeouts import Count
from migrator.transfer.move import Outcome
from migrator.transfer.rules import TransferRequest


class UncertainMessages(Part):
    """Moved messages whose headers could not be believed."""

    messages: Count
    late_by_at_most_s: float


class MovedLevel(Part):
    """One level of the source."""

    level: Count
    found: Count
    moved: Count
    poison: Count
    left: Count
    is_complete: bool
    """False: what had to stay held too long hid what may be behind it."""


class MovedDestination(Part):
    """The messages for one destination."""

    name: str
    moved: Count
    left: Count
    detail: str
    """Why messages were left, in words."""


class Collision(Part):
    """A queue that also gets the messages of another: its name is a suffix of theirs."""

    catcher: str
    caught: str


class _Moved(Document):
    dry_run: bool
    source: DelaysVersion
    target: DelaysVersion
    moved: Count
    left: Count
    why_left: Counts
    poison: Count
    poison_queue: str
    uncertain: UncertainMessages
    levels: Sequence[MovedLevel]
    destinations: Sequence[MovedDestination]
    collisions: Sequence[Collision]


class MigrateDocument(_Moved, title="migrator/delays-migrate/1"):
    """`migrator delays migrate --json`."""


class TransferDocument(_Moved, title="migrator/delays-transfer/1"):
    """`migrator delays transfer --json`."""


def moved_document(
    outcome: Outcome, request: TransferRequest
) -> MigrateDocument | TransferDocument:
    """Return *outcome*, and what was asked for."""
    form = MigrateDocument if request.verb == "migrate" else TransferDocument
    return form(
        dry_run=request.is_dry,
        source=request.source,
        target=request.target,
        moved=outcome.moved,
        left=outcome.left,
        why_left={str(why): count for why, count in outcome.why_left.items()},
        poison=outcome.poison,
        poison_queue=request.poison_queue,
        uncertain=UncertainMessages(
            messages=outcome.uncertain,
            late_by_at_most_s=outcome.largest_uncertainty.total_seconds(),
        ),
        levels=[
            MovedLevel(
                level=number,
                found=level.found,
                moved=level.moved,
                poison=level.poison,
                left=level.left,
                is_complete=level.is_complete,
            )
            for number, level in outcome.levels.items()
        ],
        destinations=[
            MovedDestination(name=name, moved=found.moved, left=found.left, detail=found.detail)
            for name, found in sorted(outcome.destinations.items())
        ],
        collisions=[
            Collision(catcher=catcher, caught=caught)
            for catcher, caught in suffix_collisions(frozenset(outcome.destinations))
        ],
    )
