"""Tests of the check ``encryption``: what is said of each server that the settings name."""

from __future__ import annotations

import pytest

from migrator.app.connections import connections
from migrator.config import Settings
from migrator.preflight.checks_broker import encryption
from migrator.preflight.context import Level
from tests.unit.preflight.fakes import context

PG = "postgresql://m:secret@"
MYSQL = "mysql://m:secret@"


def found(**settings: object) -> list[tuple[str, Level, str]]:
    """Return what the check says of *settings*: subject, level, text with remedy."""
    given = Settings.model_validate(settings)
    findings = encryption(context(connections=tuple(connections(given))))
    return [(each.subject, each.level, f"{each.text}; {each.remedy}") for each in findings]


@pytest.mark.parametrize(
    "url",
    [
        f"{PG}localhost/x",
        f"{PG}127.0.0.1/x",
        f"{PG}[::1]/x",
        "postgresql:///x?host=/run/postgresql",
        f"{MYSQL}/x?unix_socket=/run/mysqld/mysqld.sock",
        "sqlite:///x.db",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9v",
    ],
)
def test_nothing_is_said_of_this_machine(url: str) -> None:
    """Nor of what has no address of that kind."""
    ((subject, level, _),) = found(store={"url": url}, broker={"url": "amqp://localhost"})
    assert (subject, level) == ("connections", Level.OK)


@pytest.mark.parametrize(
    ("url", "level", "text"),
    [
        (f"{PG}db/x", Level.WARNING, "db is not encrypted"),
        (f"{PG}db/x", Level.WARNING, "add ?sslmode=verify-full&sslrootcert=FILE to store.url"),
        (f"{PG}db/x?sslmode=prefer", Level.WARNING, "only if the server wants it"),
        (f"{PG}db/x?sslmode=require", Level.WARNING, "certificate of db is not verified"),
        (f"{PG}/x?host=db&sslmode=verify-ca", Level.WARNING, "of db is not verified"),
        (f"{PG}db/x?sslmode=verify-full", Level.OK, "certificate of db is verified"),
        (f"{MYSQL}10.0.0.1/x", Level.WARNING, "add ?ssl_ca=FILE to store.url"),
        (f"{MYSQL}db/x?ssl_ca=/etc/ssl/db.pem", Level.OK, "is verified"),
    ],
)
def test_a_database_on_another_machine(url: str, level: Level, text: str) -> None:
    """Neither the password nor the user is told."""
    ((subject, said, told),) = found(store={"url": url})
    assert (subject, said) == ("store", level)
    assert text in told
    assert "secret" not in told


def test_an_address_that_cannot_be_read_is_left_to_the_check_that_connects() -> None:
    """It says what is wrong; nothing fails here."""
    broker = {"url": "amqp://b", "management_url": "http://[::1"}
    ((subject, level, _),) = found(broker=broker)
    assert (subject, level) == ("connections", Level.OK)


def test_each_node_and_the_api() -> None:
    """A certificate that nobody verifies protects from listening only."""
    urls = {"url": ["amqps://a", "amqp://b"], "management_url": "http://c:15672"}
    assert [(subject, level) for subject, level, _ in found(broker=urls)] == [
        ("broker", Level.OK),
        ("broker", Level.WARNING),
        ("management API", Level.WARNING),
    ]
    ((_, level, text),) = found(broker={"url": "amqps://a", "tls": {"verify": False}})
    assert (level, "is not verified" in text) == (Level.WARNING, True)
