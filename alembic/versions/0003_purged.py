"""Add how many rows of a batch are no longer kept, so that a lost row can be told from them."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SETTLED = ("handed_over", "dispatched", "released", "recalled")


def upgrade() -> None:
    """Add the column; so far, only settled batches can have been purged or folded."""
    names = context.config.attributes["names"]
    schema: Any = names.schema
    if op.get_context().dialect.name == "postgresql":
        op.execute("SET LOCAL statement_timeout = 0")  # every row is counted once
    purged = sa.Column("purged", sa.Integer, nullable=False, server_default="0")
    op.add_column(names.table("batch"), purged, schema=schema)
    if op.get_context().dialect.name in {"mssql", "oracle"}:
        return  # a ledger there never was without the column
    columns: list[sa.ColumnClause[Any]] = [
        sa.column(name) for name in ("id", "state", "size", "purged")
    ]
    batch = sa.table(names.table("batch"), *columns, schema=schema)
    row = sa.table(names.table("timeout"), sa.column("batch_id"), schema=schema)
    every = batch.alias("every")
    kept = (
        sa.select(every.c.id, sa.func.count(row.c.batch_id).label("rows"))
        .select_from(every.outerjoin(row, row.c.batch_id == every.c.id))
        .group_by(every.c.id)
        .subquery("kept")
    )
    op.execute(
        sa.update(batch)
        .where(batch.c.id == kept.c.id, batch.c.state.in_(_SETTLED), batch.c.size > kept.c.rows)
        .values(purged=batch.c.size - kept.c.rows)
    )


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")
