"""Counting rows that are no longer kept, in the transaction that deletes them.

Rules of this file: a batch always has as many rows as its size less what was purged of it, so
that ``migrator verify`` can tell a row that was purged from one that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, Table, bindparam, update


def count_purged(
    connection: Connection,
    batch: Table,
    purged: Mapping[int, int],
    left: Mapping[int, int] | None = None,
) -> None:
    """Record how many rows were just deleted of which batches.

    Batches are changed in the order of their ids, so that two who do this never wait for each
    other.

    Args:
        connection: Its transaction has deleted the rows.
        batch: The ledger's table of batches.
        purged: Rows that stay in their batch's size, by batch.
        left: Rows that do not: they had another state, and were counted by it.
    """
    left = left or {}
    changes = [
        {"of_batch": batch_id, "more": purged.get(batch_id, 0), "fewer": left.get(batch_id, 0)}
        for batch_id in sorted({*purged, *left})
    ]
    if not changes:
        return
    connection.execute(
        update(batch)
        .where(batch.c.id == bindparam("of_batch"))
        .values(purged=batch.c.purged + bindparam("more"), size=batch.c.size - bindparam("fewer")),
        changes,
    )
