"""The JSON documents of what is removed for good."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.decommission.levels import DelaysFound
from migrator.delays.routing import DelaysVersion
from migrator.documents import Document, Part
from migrator.nservicebus.timeouts import Count


class BoundQueue(Part):
    """What another program bound to the delays."""

    source: str
    target: str
    key: str
    is_queue: bool


class DeleteDocument(Document, title="migrator/delays-delete/1"):
    """`migrator delays delete --json`."""

    delays: DelaysVersion
    dry_run: bool
    deleted: bool
    exchanges: Count
    queues: Count
    obstacles: Sequence[str]
    bound: Sequence[BoundQueue]


def delete_document(
    found: DelaysFound, obstacles: Sequence[str], *, is_dry_run: bool, is_deleted: bool
) -> DeleteDocument:
    """Return what of *found* is deleted, or why not."""
    return DeleteDocument(
        delays=found.version,
        dry_run=is_dry_run,
        deleted=is_deleted,
        exchanges=len(found.exchanges),
        queues=len(found.queues),
        obstacles=obstacles,
        bound=[
            BoundQueue(
                source=each.source,
                target=each.target.name,
                key=each.key,
                is_queue=each.target_is_queue,
            )
            for each in found.bound
        ],
    )
