"""Tests of the settings of stores that are no SQL database."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import config
from migrator.config.secrets import mask
from migrator.errors import ConfigError

AZURE = '[store]\nkind = "azure"\nurl = "AccountName=a;AccountKey=c2VjcmV0"\n'


def load(tmp_path: Path, text: str) -> config.Settings:
    """Return the settings that *text* says."""
    file = tmp_path / "migrator.toml"
    file.write_text(text)
    return config.load(file=file, environ={}).settings


def test_a_ledger_of_its_own_is_named(tmp_path: Path) -> None:
    """Defaults are the vendor's."""
    found = load(tmp_path, AZURE + '[ledger]\nurl = "sqlite:///x.db"\n')
    assert found.ledger.url is not None
    assert found.store.azure.table == "TimeoutDataTableName"
    assert found.store.azure.partition_key_scope == "yyyyMMddHH"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[store]\nurl = "a"\n[ledger]\nurl = "b"\n', "ledger.url must be empty"),
        (AZURE + '[handover]\nnear_due = "dispatch"\n', "need a SQL store"),
        (AZURE + '[[endpoints]]\nname = "A"\nmode = "forward"\n', "set for: A"),
        (AZURE + '[store.azure]\ntable = "1x"\n', "a letter first"),
        (AZURE + '[store.azure]\ncontainer = "Upper"\n', "lower case"),
        (AZURE + '[store.azure]\npartition_key_scope = "yyMM"\n', "such as yyyyMMddHH"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """At once, and with the reason."""
    with pytest.raises(ConfigError, match=complaint):
        load(tmp_path, text)


def test_the_same_ledger_twice_is_harmless(tmp_path: Path) -> None:
    """A SQL store's own database is where its ledger is."""
    found = load(tmp_path, '[store]\nurl = "a"\n[ledger]\nurl = "a"\n')
    assert found.ledger.url == found.store.url
    assert not found.store.kind.has_own_ledger


@pytest.mark.parametrize(
    "text",
    ["AccountKey=c2Vj/+x==", "SharedAccessSignature=sv=1&sig=c2VjcmV0", "?sv=1&sig=c2VjcmV0"],
)
def test_keys_and_signatures_are_masked(text: str) -> None:
    """Wherever a connection string may turn up."""
    shown = mask(f"AccountName=a;{text};EndpointSuffix=core")
    assert "c2Vj" not in shown
    assert "AccountName=a" in shown
