"""What stores of documents do not do: each is refused, with the reason, before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import config
from migrator.app.servers import open_servers
from migrator.errors import ConfigError, PreflightRefused

ADDRESSES = {
    "azure": "AccountName=a;AccountKey=c2VjcmV0",
    "ravendb": "http://127.0.0.1:1",
}


@pytest.fixture(params=ADDRESSES)
def store_kind(request: pytest.FixtureRequest) -> str:
    """A kind of document store; none is asked."""
    return str(request.param)


@pytest.fixture
def settings_file(store_kind: str, tmp_path: Path) -> Path:
    """Settings of such a store."""
    lines = [
        "[store]",
        f'kind = "{store_kind}"',
        f'url = "{ADDRESSES[store_kind]}"',
        "[store.ravendb]",
        'database = "Sales"',
        "[ledger]",
        f'url = "sqlite:///{tmp_path}/ledger.db"',
        "",
    ]
    file = tmp_path / "migrator.toml"
    file.write_text("\n".join(lines if store_kind == "ravendb" else [*lines[:3], *lines[5:]]))
    return file


@pytest.mark.parametrize(
    "more",
    [
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\n',
        '[[endpoints]]\nname = "Sales"\nmode = "forward"\n',
        '[handover]\nnear_due = "dispatch"\n',
    ],
    ids=["dispatch", "forward", "near due"],
)
def test_dispatching_is_refused(settings_file: Path, more: str) -> None:
    """By the settings, so no command gets as far as the store."""
    settings_file.write_text(settings_file.read_text() + more)
    with pytest.raises(ConfigError, match="need a SQL store"):
        config.load(file=settings_file, environ={})


@pytest.mark.parametrize("wanted_for", ["dispatching", "decommissioning", "granting"])
def test_what_needs_tables_is_refused(
    settings_file: Path, store_kind: str, wanted_for: str
) -> None:
    """The store's kind is named; no store is asked, and no ledger is made."""
    settings = config.load(file=settings_file, environ={}).settings
    with (
        open_servers(settings, must_exist=False) as servers,
        pytest.raises(PreflightRefused, match=rf"{wanted_for} needs a SQL store.*{store_kind}"),
    ):
        servers.sql_backend(wanted_for=wanted_for)
    assert not (settings_file.parent / "ledger.db").exists()
