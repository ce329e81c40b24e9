"""Tests of ``migrator.config.describe``."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config import describe, load, show_text
from migrator.config.describe import Plain
from migrator.config.sources import Option


def test_every_setting_is_shown_once_with_value_and_origin(tmp_path: Path) -> None:
    """In the order of the documentation; each endpoint with all its keys."""
    file = tmp_path / "migrator.toml"
    file.write_text('[handover]\nhorizon = "30d"\n[[endpoints]]\nname = "Sales"\nschema = "s"\n')
    options = [Option(("handover", "destination_map"), {"A": "B"}, "--map")]
    rows = describe(load(file=file, options=options, environ={"MIGRATOR_STORE__SCHEMA": "x"}))
    found = {row.key: (row.value, row.origin) for row in rows}
    assert len(found) == len(rows)
    assert next(iter(found)) == "store.kind"
    assert found["store.kind"] == ("sql", "default")
    assert found["store.schema"] == ("x", "env MIGRATOR_STORE__SCHEMA")
    assert found["handover.horizon"] == ("30d", f"file {file}")
    assert found["handover.cutoff"] == ("1m", "default")
    assert found["handover.destination_map"] == ({"A": "B"}, "option --map")
    assert found["dispatch.retry_delays"] == (["10s", "1m", "5m"], "default")
    assert found["endpoints[0].name"] == ("Sales", f"file {file}")
    assert found["endpoints[0].schema"] == ("s", f"file {file}")
    assert found["endpoints[0].mode"] == ("migrate", "default")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://nsb:swordfish@db/sales", "postgresql://nsb:***@db/sales"),
        ("host=db;password=swordfish", "host=db;password=***"),
        ("some form nobody knows: swordfish", "***"),
    ],
)
def test_secrets_are_masked(url: str, expected: str) -> None:
    """Where the password cannot be found, everything is hidden."""
    found = load(environ={"MIGRATOR_STORE__URL": url}, file=None)
    (row,) = [row for row in describe(found) if row.key == "store.url"]
    assert row.value == expected


def test_each_address_of_a_list_is_masked() -> None:
    """One whose password cannot be found is hidden as a whole, and the others are shown."""
    listed = "amqp://a:b,c@one, host=two;passphrase , amqp://a:b@three"
    found = load(environ={"MIGRATOR_BROKER__URL": listed}, file=None)
    (row,) = [row for row in describe(found) if row.key == "broker.url"]
    assert row.value == ["amqp://a:***@one", "***", "amqp://a:***@three"]


def test_paths_are_shown_as_text(tmp_path: Path) -> None:
    """A secret's file may be shown; its content is not."""
    secret = tmp_path / "url"
    secret.write_text("amqp://a:swordfish@c")
    rows = describe(load(environ={"MIGRATOR_BROKER__URL_FILE": str(secret)}))
    found = {row.key: row.value for row in rows}
    assert found["broker.url_file"] == str(secret)
    assert found["broker.url"] == "amqp://a:***@c"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (3, "3"),
        ("x", "x"),
        ({"a": "b", "c": "d"}, "a=b, c=d"),
        (["1s", "2s"], "1s, 2s"),
    ],
)
def test_values_fit_a_cell(value: Plain, expected: str) -> None:
    """One line each."""
    assert show_text(value) == expected
