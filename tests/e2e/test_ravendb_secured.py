"""The real program with a RavenDB that lets nobody in without a certificate that it knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.raven_parts import MAIN
from tests.e2e.test_documents import RavenRig, raven_settings
from tests.support.raven_real import RealRaven
from tests.support.raven_secured import Client, SecuredRaven, secured_raven

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class SecuredRig(RavenRig):
    """A system whose documents are behind a certificate."""

    def show(self, client: Client | None, ca: Path | None) -> None:
        """Let the program show the certificate of *client*, and trust *ca*."""
        files = {"CA": ca, "CERT": client and client.cert, "KEY": client and client.key}
        for name, file in files.items():
            key = f"MIGRATOR_STORE__RAVENDB__{name}_FILE"
            self.settings.pop(key, None)
            self.settings |= {key: str(file)} if file else {}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRaven]:
    """A server, with one database."""
    with secured_raven(MAIN, tmp_path_factory.mktemp("raven")) as raven:
        yield raven


@pytest.fixture
def rig(secured: SecuredRaven, database: str, vhost: Any) -> Iterator[SecuredRig]:
    """That database without documents, a ledger and a broker of this test's own."""
    with RealRaven(secured.server, secured.database) as raven:
        raven.empty()
        rig = SecuredRig(
            database_url=database,
            broker_url=vhost.amqp_url,
            management_url=vhost.node.management_url,
            settings=raven_settings(raven, database),
            legacy=raven,
        )
        rig.show(secured.writer, secured.ca)
        rig.prepare()
        yield rig
        rig.close()


def test_all_goes_over_tls(rig: SecuredRig) -> None:
    """Found, moved, and rolled back to what was there, by a client with rights in one database."""
    rows = [rig.new_row() for _ in range(5)]
    rig.insert(rows)
    before = rig.contents()
    (listed,) = json.loads(rig.must("preview", "--all-endpoints", "--json"))["endpoints"]
    assert listed["endpoint"] == "Sales"
    rig.must("preview", "--endpoint", "Sales", "--json")
    rig.migrate()
    assert rig.stored_ids() == set()
    rig.must("rollback", "--yes", "--json")
    assert rig.contents() == before


def test_whoever_has_no_right_is_refused_without_a_secret(
    rig: SecuredRig, secured: SecuredRaven
) -> None:
    """No certificate, an unknown one, one for another database, a server nobody vouches for."""
    rig.insert([rig.new_row()])
    needed = "refused this client (403, InvalidAuth)"
    for client, ca, said in (
        (None, secured.ca, needed),
        (secured.neighbour, secured.ca, needed),
        (secured.stranger, secured.ca, needed),
        (secured.writer, None, "its certificate is not trusted"),
    ):
        rig.show(client, ca)
        for command in (("preview",), ("run", "--endpoint", "Sales", "--once")):
            told = rig.run(*command)
            assert told.returncode == 4, told.stderr
            text = " ".join((told.stdout + told.stderr).split())  # a plan has it in a column
            assert said in text
            assert "store.ravendb.c" in text
            assert "CN=" not in text
    assert len(rig.stored_ids()) == 1
