"""The real program with a RavenDB that lets nobody in without a certificate that it knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from dev.raven_parts import MAIN
from tests.e2e.test_ravendb import RavenRig, documents
from tests.support.raven_real import RealRaven
from tests.support.raven_secured import Client, SecuredRaven, secured_raven

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class SecuredRig(RavenRig):
    """A system whose documents are behind a certificate."""

    more: dict[str, str] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the program's environment."""
        return super().environment(**self.more, **more)

    def show(self, raven: SecuredRaven, client: Client | None) -> None:
        """Let the program show the certificate of *client*, or none."""
        self.more = {"MIGRATOR_STORE__RAVENDB__CA_FILE": str(raven.ca)}
        if client is not None:
            self.more["MIGRATOR_STORE__RAVENDB__CERT_FILE"] = str(client.cert)
            self.more["MIGRATOR_STORE__RAVENDB__KEY_FILE"] = str(client.key)


@pytest.fixture(scope="module", params=[MAIN])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredRaven]:
    """A server, with one database."""
    with secured_raven(request.param, tmp_path_factory.mktemp("raven")) as raven:
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
            raven=raven,
        )
        rig.show(secured, secured.writer)
        yield rig
        rig.close()


def test_all_goes_over_tls(rig: SecuredRig) -> None:
    """Found, moved, and rolled back to what was there, by a client with rights in one database."""
    rig.prepare()
    rows = documents(5)
    rig.insert(rows)
    before = {each.id: rig.server.content(each.id) for each in rows}
    (listed,) = json.loads(rig.must("endpoints", "--json"))["endpoints"]
    assert listed["endpoint"] == "Sales"
    rig.must("check", "--endpoint", "Sales", "--json")
    rig.migrate()
    assert rig.stored_ids() == set()
    assert set(rig.batch_states()) == {"handed_over"}
    rig.must("rollback", "--yes", "--json")
    assert {each.id: rig.server.content(each.id) for each in rows} == before


def refused(rig: SecuredRig, *command: str) -> None:
    """Assert that the program ends with what is needed, and says nothing of a certificate."""
    told = rig.run(*command)
    assert told.returncode == 4, told.stderr
    assert "refused this client (403, InvalidAuth)" in told.stderr
    assert "store.ravendb.cert_file, with the right to" in told.stderr
    assert "CN=" not in told.stderr + told.stdout


def test_whoever_has_no_right_is_refused_without_a_secret(
    rig: SecuredRig, secured: SecuredRaven
) -> None:
    """No certificate, an unknown one, or one for another database: what is needed is said."""
    rig.prepare()
    rows = documents(1)
    rig.insert(rows)
    for client in (None, secured.neighbour, secured.stranger):
        rig.show(secured, client)
        refused(rig, "endpoints")
    refused(rig, "run", "--endpoint", "Sales", "--once")
    assert rig.stored_ids() == {each.id for each in rows}


def test_a_server_that_nobody_vouches_for_is_not_talked_to(
    rig: SecuredRig, secured: SecuredRaven
) -> None:
    """Without ``ca_file`` the system's authorities count, and none of them knows it."""
    rig.prepare()
    rig.show(secured, secured.writer)
    del rig.more["MIGRATOR_STORE__RAVENDB__CA_FILE"]
    told = rig.run("endpoints")
    assert told.returncode == 4
    assert "nobody vouches for its certificate" in told.stderr
    assert "store.ravendb.ca_file" in told.stderr
