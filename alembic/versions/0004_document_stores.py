"""Add what a document store needs: two more states of a batch, and what restores a document."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from migrator.database.types import LINE, LONG_TEXT, UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns, all empty at first; rows of SQL stores leave them so."""
    names = context.config.attributes["names"]
    schema: Any = names.schema
    for name in ("claiming_at", "releasing_at"):
        column = sa.Column(name, UtcDateTime(), nullable=True)
        op.add_column(names.table("batch"), column, schema=schema)
    for name in ("store_version", "store_extra", "going_back"):
        kind = LINE if name == "going_back" else LONG_TEXT
        column = sa.Column(name, kind, nullable=True)
        op.add_column(names.table("timeout"), column, schema=schema)


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")
