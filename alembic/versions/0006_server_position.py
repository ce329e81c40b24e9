"""Keep with each lane where the server's log was, so that a failover to a replica is noticed."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from migrator.database.types import key_text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: `db upgrade` then enters where the server is."""
    names = context.config.attributes["names"]
    schema: Any = names.schema
    op.add_column(
        names.table("lease"), sa.Column("position", key_text(), nullable=True), schema=schema
    )


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")
