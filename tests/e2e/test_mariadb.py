"""The whole life of a migration with timeouts in MariaDB, through the real program."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy.engine import make_url

from dev.servers import MariadbServer
from tests.e2e.rig import Rig
from tests.e2e.rows import row


@pytest.mark.slow
def test_looked_at_migrated_verified_and_taken_back(
    mariadb_rig: Rig, mariadb_server: MariadbServer
) -> None:
    """Every verb an operator needs, with the grants that are printed and nothing beyond them.

    At the end each row is in the table as it was.
    """
    rig, url = mariadb_rig, make_url(mariadb_rig.database_url)
    rig.prepare()
    database = str(url.database)
    mariadb_server.sql(f"CREATE USER `{database}`")
    mariadb_server.sql(rig.must("db", "grants", "--role", database), database)
    limited = url.set(username=database).render_as_string(hide_password=False)
    rig.settings["MIGRATOR_STORE__URL"] = limited
    rows = [row(timedelta(days=3, seconds=n), body=bytes(range(n % 256))) for n in range(300)]
    rig.insert(rows)
    before = rig.stored()
    assert "Sales" in rig.must("endpoints")
    rig.must("check", "--endpoint", "Sales")
    preview = json.loads(rig.must("preview", "--endpoint", "Sales", "--json"))
    assert rig.stored() == before
    assert "300" in json.dumps(preview)
    rig.migrate()
    assert rig.stored() == {}
    rig.must("verify", "--scan")
    rig.must("rollback", "--yes")
    assert rig.stored() == before
    rig.must("verify", "--scan")
    assert rig.drain_levels() == []
