"""Add the ledger id by which a batch's evidence is found, once the ledger has another one."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from migrator.database.types import key_text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: all evidence there is bears the ledger's present id."""
    names = context.config.attributes["names"]
    schema: Any = names.schema
    column = sa.Column("ledger_id", key_text(), nullable=True)
    op.add_column(names.table("batch"), column, schema=schema)


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")
