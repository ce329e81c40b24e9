"""The delay levels, declared on a real broker and looked at without touching it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from pika.compat import long as as_int64

from migrator.delays.routing import DelaysVersion
from migrator.delays.topology import create_delays, inspect_delays
from migrator.errors import EntityMismatch
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import V1, V2, connection, plain_channel

PREFIX = {V1: "nsb.delay-", V2: "nsb.v2.delay-"}


def _expected_arguments(version: DelaysVersion, level: int) -> dict[str, Any]:
    lower = f"level-{level - 1:02d}" if level else "delivery"
    common = {
        "x-message-ttl": 2**level * 1000,
        "x-dead-letter-exchange": f"{PREFIX[version]}{lower}",
    }
    if version is V1:
        return common | {"x-queue-mode": "lazy"}
    return common | {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _expected_bindings(version: DelaysVersion) -> set[tuple[str, str, str, str]]:
    prefix, found = PREFIX[version], set()
    for level in range(28):
        name, stars = f"{prefix}level-{level:02d}", "*." * (27 - level)
        lower = f"{prefix}level-{level - 1:02d}" if level else f"{prefix}delivery"
        found.add((name, name, "queue", f"{stars}1.#"))
        found.add((name, lower, "exchange", f"{stars}0.#"))
    return found


def _listed(vhost: Vhost, what: str) -> list[dict[str, Any]]:
    rows = vhost.node.api("GET", f"{what}/{quote(vhost.name, safe='')}")
    return [row for row in rows if str(row.get("name") or row.get("source")).startswith("nsb.")]


@pytest.mark.parametrize("version", [V1, V2])
def test_the_levels_are_declared_as_the_vendor_does(vhost: Vhost, version: DelaysVersion) -> None:
    """Names, types, arguments and bindings are those of the reference; twice changes nothing."""
    settings = connection(vhost.amqp_url)
    create_delays(settings, version)
    create_delays(settings, version)
    queues = {row["name"]: row for row in _listed(vhost, "queues")}
    exchanges = {row["name"]: row for row in _listed(vhost, "exchanges")}
    assert len(queues) == 28
    assert len(exchanges) == 29
    for level in range(28):
        row = queues[f"{PREFIX[version]}level-{level:02d}"]
        # RabbitMQ 4 tells the type of each queue, also where none was asked for
        told = {"x-queue-type": "classic", **_expected_arguments(version, level)}
        assert {"x-queue-type": row["type"], **row["arguments"]} == told
        assert (row["durable"], row["exclusive"], row["auto_delete"]) == (True, False, False)
    assert {row["type"] for row in exchanges.values()} == {"topic"}
    assert all(row["durable"] and not row["auto_delete"] for row in exchanges.values())
    bindings = {
        (row["source"], row["destination"], row["destination_type"], row["routing_key"])
        for row in _listed(vhost, "bindings")
    }
    assert bindings == _expected_bindings(version)


@pytest.mark.parametrize("version", [V1, V2])
def test_levels_of_the_vendor_are_equivalent(vhost: Vhost, version: DelaysVersion) -> None:
    """Levels declared by .NET, whose TTL is a 64-bit integer, are found present and kept."""
    with plain_channel(vhost.amqp_url) as channel:
        for level in range(28):
            arguments = _expected_arguments(version, level)
            arguments["x-message-ttl"] = as_int64(arguments["x-message-ttl"])
            name = f"{PREFIX[version]}level-{level:02d}"
            channel.queue_declare(name, durable=True, arguments=arguments)
    settings = connection(vhost.amqp_url)
    found = inspect_delays(settings, version, find_bindings=None)
    assert (len(found.missing), found.different) == (29, {})
    create_delays(settings, version)
    assert inspect_delays(settings, version, find_bindings=None).is_usable


def test_looking_creates_nothing(vhost: Vhost) -> None:
    """Inspecting an empty virtual host finds all absent and leaves it empty."""
    found = inspect_delays(connection(vhost.amqp_url), V2, find_bindings=None)
    assert (len(found.missing), len(found.not_checked)) == (57, 1)
    assert not _listed(vhost, "queues")
    assert not _listed(vhost, "exchanges")


def test_a_level_with_other_arguments_is_found(vhost: Vhost) -> None:
    """One wrong level is named with the broker's words, and declaring refuses to go on."""
    name = "nsb.v2.delay-level-05"
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare(name, durable=True, arguments={"x-message-ttl": 32_001})
        channel.exchange_declare("nsb.v2.delay-level-06", "fanout", durable=True)
    settings = connection(vhost.amqp_url)
    wrong = inspect_delays(settings, V2, find_bindings=None).different
    assert wrong.keys() == {name, "nsb.v2.delay-level-06"}
    assert all("inequivalent" in detail for detail in wrong.values())
    with pytest.raises(EntityMismatch, match="inequivalent"):
        create_delays(settings, V2)


def test_without_rights_the_levels_are_unknown(vhost: Vhost) -> None:
    """A user who may not declare learns that levels exist, and that nobody compared them."""
    create_delays(connection(vhost.amqp_url), V2)
    vhost.node.add_user("looker", "pw")
    vhost.node.set_permissions(vhost.name, "looker", configure="^$", write="^$", read="^$")
    url = vhost.node.amqp_url(vhost.name, user="looker", password="pw")
    found = inspect_delays(connection(url), V2, find_bindings=None)
    assert len(found.not_checked) == 57 + 1  # the bindings
    assert (found.missing, found.different) == ([], {})
