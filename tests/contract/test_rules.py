"""Every store is asked every rule, and the page that says so is what pytest collects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.conftest import COLLECTED
from tests.contract.rules import COLUMNS, RULES, Run, Shown, page, table

PAGE = Path(__file__).parents[2] / "docs/reference/stores.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Sequence[Run]:
    """What is collected of these tests; they have to be collected whole."""
    found = request.config.stash[COLLECTED]
    named = {test for rule in RULES for test in (*rule.tests, *rule.refusals)}
    if not named <= {run.test for run in found}:
        here = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
        if here > {run.file for run in found}:
            pytest.skip("only some of tests/contract were collected")
    return found


def test_every_store_is_asked_every_rule(runs: Sequence[Run]) -> None:
    """Or it is shown that it refuses, or that it has no such thing."""
    missing = [
        f"{text}: {column}"
        for text, cells in table(runs).items()
        for column, cell in zip(COLUMNS, cells, strict=True)
        if cell is Shown.NOT
    ]
    assert missing == []


def test_the_page_shows_what_is_run(runs: Sequence[Run], request: pytest.FixtureRequest) -> None:
    """``--snapshot-update`` writes it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)
    if request.config.getoption("--snapshot-update"):
        PAGE.write_text(before + BEGIN + page(table(runs)) + END + after)
        return
    assert written == page(table(runs))
