"""What ``migrator db upgrade`` does to the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.app.ledger import open_ledger
from migrator.ledger import migrations, version

if TYPE_CHECKING:
    from migrator.config import Settings


def upgrade_ledger(settings: Settings, *, is_dry_run: bool) -> tuple[str | None, str | None, str]:
    """Bring the ledger to the newest version; return which it had, has, and which is needed."""
    with open_ledger(settings, must_exist=False) as ledger:
        before = version.current(ledger.engine, ledger.tables)
        if not is_dry_run:
            migrations.upgrade(ledger.engine, ledger.tables)
        return before, version.current(ledger.engine, ledger.tables), version.head()
