"""Connection strings as systems really have them, and as people mistype them."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from migrator.errors import ConfigError
from migrator.rabbitmq.addresses import BrokerAddress, parse_address, parse_addresses

REALISTIC = [
    ("amqp://h", BrokerAddress(host="h", port=5672)),
    ("AMQP://h/", BrokerAddress(host="h", port=5672)),
    ("amqps://h", BrokerAddress(host="h", port=5671, use_tls=True)),
    (
        "amqp://u%40x:p%3A%2F%25@h:5673/%2Fprod",
        BrokerAddress(host="h", port=5673, user="u@x", password="p:/%", vhost="/prod"),
    ),
    ("amqp://u@h/v?heartbeat=3", BrokerAddress(host="h", port=5672, user="u", vhost="v")),
    ("amqp://[::1]:5673/v", BrokerAddress(host="::1", port=5673, vhost="v")),
    (" amqp://h/b%C3%BCro ", BrokerAddress(host="h", port=5672, vhost="büro")),
    ("host=h", BrokerAddress(host="h", port=5672)),
    (
        "Host=h:5673; UserName=u; PASSWORD=p=1&2; virtualhost=prod;",
        BrokerAddress(host="h", port=5673, user="u", password="p=1&2", vhost="prod"),
    ),
    ("host=h;useTls=True", BrokerAddress(host="h", port=5671, use_tls=True)),
    ("host=h;useTls=true;port=5000", BrokerAddress(host="h", port=5000, use_tls=True)),
    ("host=h;password='a;b''c'", BrokerAddress(host="h", port=5672, password="a;b'c")),
    ('host=h;password="a;b""c"', BrokerAddress(host="h", port=5672, password='a;b"c')),
    ("host=h;password=", BrokerAddress(host="h", port=5672)),
    (
        "host=h;requestedHeartbeat=60;RetryDelay=00:00:10;dequeueTimeout=1;prefetchCount=10;"
        "usePublisherConfirms=true;maxWaitTimeForConfirms=5;certPath=c.pfx;certPassphrase=x",
        BrokerAddress(host="h", port=5672),  # settings of old transports do not stop anybody
    ),
]

PATHOLOGICAL = [
    ("amqp:/h", ["amqp://"]),
    ("amqpx://h", ["amqp://"]),
    ("https://u:p@h:15671", ["it must start with amqp:// or amqps://"]),
    ("amqp://", ["host"]),
    ("amqp://h/a/b", ["more than one segment"]),
    ("amqp://a:b:c@h", ["more than one ':'"]),
    ("amqp://h:0", ["port"]),
    ("amqp://h:65536", ["port"]),
    ("amqp://h:x1", ["port"]),
    ("amqp://h:", ["port"]),
    ("amqp://::1", ["[ ]"]),
    ("amqp://a:b:c@h:x/1/2", ["':'", "port", "segment"]),
    ("amqp://u:%zz@h", ["password", "two hex digits"]),
    ("amqp://u:%ff@h", ["password", "UTF-8"]),
    ("amqp://h/\udcc2", ["virtual host", "UTF-8"]),
    ("", ["host=…"]),
    ("nonsense", ["character 1"]),
    ("host=a,b", ["names one host"]),
    ("host=h;host=g", ["host is given twice"]),
    ("host=h;port=no;useTls=maybe;colour=red", ["port", "useTls", "colour"]),
    ("username=u;password=secret", ["host=…"]),
    ("host=h;=x", ["character"]),
]


@pytest.mark.parametrize(("text", "expected"), REALISTIC)
def test_both_forms_name_a_broker(text: str, expected: BrokerAddress) -> None:
    """Realistic strings of both forms are read with the transport's defaults."""
    assert parse_address(text) == expected


@pytest.mark.parametrize(("text", "words"), PATHOLOGICAL)
def test_every_problem_of_a_string_is_named(text: str, words: list[str]) -> None:
    """A wrong string is refused with all that is wrong about it."""
    with pytest.raises(ConfigError) as refused:
        parse_address(text)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    "text",
    [
        "amqp://u:hush/hush@h",
        "amqp://u:hush%zz@h",
        "amqp://u:hush:x@h",
        "host=h;password=hush;port=x",
        "password=hush",
    ],
)
def test_a_password_is_never_quoted(text: str) -> None:
    """Errors about a string do not repeat the password in it, nor does an address as text."""
    address = parse_address("amqp://u:hush@h/v")
    assert "hush" not in f"{address} {address!r}"
    with pytest.raises(ConfigError) as refused:
        parse_address(text)
    assert "hush" not in str(refused.value)


def test_a_list_names_the_nodes_of_one_cluster() -> None:
    """One address per line; each form, user and port may differ."""
    nodes = parse_addresses("amqp://a:p@one:5673/prod\nhost=two;virtualhost=prod;username=b")
    assert [(node.host_port, node.user, node.vhost) for node in nodes] == [
        ("one:5673", "a", "prod"),
        ("two:5672", "b", "prod"),
    ]


def test_a_list_of_several_virtual_hosts_is_refused() -> None:
    """Failing over must not change where messages go."""
    with pytest.raises(ConfigError, match=r"2 virtual hosts \('/', 'prod'\)") as refused:
        parse_addresses("amqp://a:hush@one/prod\namqp://a:hush@two")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("begin", ["", "host='", 'host="', "host=h;"])
@pytest.mark.parametrize("unit", [" ", "\u2028", "''", "a=' ;"])
def test_a_long_string_takes_time_in_proportion(begin: str, unit: str) -> None:
    """64 KiB of what a pattern could match in many ways are read in a moment, not in minutes."""
    began_s = time.process_time()
    with suppress(ConfigError):
        parse_address(f"{begin}{unit * (65_536 // len(unit))}x")
    assert time.process_time() - began_s < 1
