"""Every database the stores and the ledger support, one test run each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from migrator.database.engine import open_engine
from tests.contract.site import Site


@pytest.fixture(params=["postgresql", "sqlite"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/legacy.db"
    return str(request.getfixturevalue("database"))


@pytest.fixture
def build_site(database_url: str) -> Iterator[Callable[..., Site]]:
    """Build a site with special options."""
    with ExitStack() as stack:

        def build(**options: Any) -> Site:
            engine = open_engine(database_url)
            stack.callback(engine.dispose)
            return Site(engine=engine, **options)

        yield build


@pytest.fixture
def site(build_site: Callable[..., Site]) -> Site:
    """A site as most are."""
    return build_site()
