"""A database with shards is refused, before anything in it is touched."""

from __future__ import annotations

import pytest

from dev.servers import RavenServer
from migrator.errors import StoreError
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from tests.support.raven_boundary import DATABASE
from tests.support.ravendb import StrictRaven


def refuse(url: str, database: str) -> None:
    """Assert that the store says what is wrong, whatever it is asked first."""
    server = ServerSettings(url=url, database=database)
    with RavenStore(RavenOptions(server=server)) as store:
        name = EndpointName("Sales")
        sales = StoreEndpoint(name=name, source=store.source_of(name))
        for ask in (store.endpoints, lambda: store.probe(sales)):
            with pytest.raises(StoreError, match=r"is sharded.*nothing was changed"):
                ask()


def test_a_database_of_shards_is_refused() -> None:
    """As 6.2 and 7.0 tell it."""
    with StrictRaven("4") as server:
        server.shards = [f"{DATABASE}$0", f"{DATABASE}$1"]
        refuse(server.url, DATABASE)
        assert not [seen for seen in server.seen if seen.method != "GET"]


def test_a_server_that_does_not_tell_names_is_asked_on() -> None:
    """A proxy may let nothing through but the database itself."""
    with StrictRaven("4") as server:
        server.plan("namesOnly", status=403)
        with RavenStore(
            RavenOptions(server=ServerSettings(url=server.url, database=DATABASE))
        ) as store:
            assert store.endpoints() == []


@pytest.mark.slow
def test_real_shards_are_told(raven_server: RavenServer) -> None:
    """RavenDB makes them of any database that is asked for so."""
    if raven_server.version < "6":
        pytest.skip("it has no shards")
    on_one_node = {"Members": ["A"]}
    shards = {"0": on_one_node, "1": on_one_node}
    told = {"Shards": shards, "Orchestrator": {"Topology": on_one_node}}
    name = raven_server.create_database(Sharding=told)
    try:
        refuse(raven_server.url(), name)
    finally:
        raven_server.drop_database(name)
