"""The JSON documents of what is removed for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from migrator.decommission.levels import DelaysFound
from migrator.delays.routing import DelaysVersion
from migrator.documents import Document, Part
from migrator.nservicebus.timeouts import Count
from migrator.rabbitmq.entities import Kind


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


class Refusal(Part):
    """Why nothing is removed."""

    code: str
    text: str
    remedy: str


class BindingRecord(Part):
    """A binding, as it can be made again."""

    source: str
    target: str
    target_kind: Kind
    key: str
    arguments: dict[str, Any]


class RemovedEntity(Part):
    """An exchange or a queue."""

    kind: Kind
    name: str


class KeptEntity(RemovedEntity):
    """An exchange or a queue that stays."""

    why: str


class Statement(Part):
    """SQL about the legacy table."""

    purpose: Literal["archive", "drop"]
    sql: str
    wanted: bool
    done: bool


class DecommissionDocument(Document, title="migrator/decommission/1"):
    """`migrator decommission --json`."""

    endpoint: str
    queue: str
    source: str
    dry_run: bool
    done: bool
    refusals: Sequence[Refusal]
    unbind: Sequence[BindingRecord]
    delete: Sequence[RemovedEntity]
    keep: Sequence[KeptEntity]
    bind_again: Sequence[BindingRecord]
    sql: Sequence[Statement]
    notes: Sequence[str]
