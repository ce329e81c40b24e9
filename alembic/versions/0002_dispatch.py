"""Add what a dispatcher keeps: its lane, when its batches were sent, destinations that wait."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from migrator.database.types import LONG_TEXT, UtcDateTime, key_text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns, both empty at first, and one table."""
    names = context.config.attributes["names"]
    schema: Any = names.schema
    lease = names.table("lease")
    sent_at = sa.Column("dispatched_at", UtcDateTime(), nullable=True)
    op.add_column(names.table("batch"), sent_at, schema=schema)
    op.add_column(lease, sa.Column("serves", key_text(), nullable=True), schema=schema)
    # NULL is a value on SQL Server
    options: Any = {"schema": schema, "mssql_where": sa.text("serves IS NOT NULL")}
    op.create_index(names.table("lease_serves"), lease, ["serves"], unique=True, **options)
    op.create_table(
        names.table("held_destination"),
        sa.Column("source", key_text(), nullable=False),
        sa.Column("destination", key_text(500), nullable=False),
        sa.Column("endpoint", key_text(), nullable=False),
        sa.Column("reason", key_text(), nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("since", UtcDateTime(), nullable=False),
        sa.Column("next_try_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("source", "destination", mssql_clustered=False),
        schema=schema,
    )


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")
