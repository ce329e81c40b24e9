"""SQL views over the ledger for people and their tools; names and columns are public.

They are created by ``alembic/versions`` and quoted here so that queries of ours use the same.
"""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, Table, Text

from migrator.ledger.names import LedgerNames


def progress_view(names: LedgerNames) -> Table:
    """Return the view with one row per endpoint and effective state, and how many rows are in it.

    Fast: it sums batch sizes and corrects them by the rows that differ from their batch.
    """
    return Table(
        names.table("progress"),
        MetaData(schema=names.schema),
        Column("endpoint", Text),
        Column("state", Text),
        Column("rows", Integer),
    )
