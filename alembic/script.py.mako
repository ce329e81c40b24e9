"""${message}."""

import sqlalchemy as sa
from alembic import context, op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this step."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")
