"""Tests of ``migrator.cli.session``."""

from __future__ import annotations

import logging

import pytest

from migrator.cli.session import confirmed, given, renamed
from migrator.config.load import Option
from migrator.errors import ConfigError
from tests.unit.cli.conftest import Program


def test_options_that_were_not_given_are_no_settings() -> None:
    """Weaker sources decide then."""
    assert given("handover.lanes", None, "--lanes") is None
    assert given("handover.lanes", 0, "--lanes") == Option(("handover", "lanes"), 0, "--lanes")


def test_renamings_are_one_mapping() -> None:
    """Blanks round the names do not count; an = in the new name does."""
    found = renamed(["A.B = C", "D=E=F"])
    assert found == Option(("handover", "destination_map"), {"A.B": "C", "D": "E=F"}, "--map")
    assert renamed(None) is None


@pytest.mark.parametrize("pair", ["A", "=B", "A=", " = "])
def test_half_a_renaming_is_refused(pair: str) -> None:
    """It says what the form is."""
    with pytest.raises(ConfigError, match="old=new"):
        renamed([pair])


def test_nothing_is_done_without_yes() -> None:
    """It says what would have happened."""
    confirmed(yes=True, what="all would go")
    with pytest.raises(ConfigError, match=r"all would go; add --yes.*Nothing was changed"):
        confirmed(yes=False, what="all would go")


@pytest.mark.parametrize(("flag", "level"), [("-v", logging.DEBUG), ("--json", logging.INFO)])
def test_verbosity_is_the_log_level(program: Program, flag: str, level: int) -> None:
    """One -v is enough for debug lines."""
    program(flag, "config", "show")
    assert logging.getLogger().level == level
