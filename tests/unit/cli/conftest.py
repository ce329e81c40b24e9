"""The program as tests call it: in this process, on a SQLite file, with a broker in memory."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import text

from migrator.app.broker import Broker
from migrator.cli import main
from migrator.database.engine import open_engine, reading
from migrator.delays.depths import LevelDepths
from migrator.delays.routing import DelaysVersion
from migrator.delays.walk import LevelAccess
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from tests.contract.site import Site
from tests.support.documents import check_output
from tests.unit.preflight.fakes import FakeBroker


@dataclass(frozen=True, slots=True)
class Depths:
    """Levels that can only be counted."""

    broker: FakeBroker

    def depths(self) -> Sequence[LevelDepths]:
        """Return what the broker in memory has."""
        return [self.broker.level_depths(version) for version in DelaysVersion]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call of the program ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Return stdout as JSON."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass
class Program:
    """Calls the program with a store of its own."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    broker: FakeBroker = field(default_factory=FakeBroker)

    def __call__(self, *arguments: str, codes: Sequence[int] = (0,)) -> Ended:
        """Run the program; it must end with one of *codes*."""
        self.capsys.readouterr()
        file = self.folder / "migrator.toml"
        with pytest.MonkeyPatch.context() as patch:
            if file.exists():  # tests may be root's, who uses none but from /etc that is not named
                patch.setenv("MIGRATOR_CONFIG", os.environ.get("MIGRATOR_CONFIG", str(file)))
            with pytest.raises(SystemExit) as caught:
                main(arguments)
        code = int(caught.value.code or 0)
        out, err = self.capsys.readouterr()
        assert code in codes, f"{arguments} ended with {code}: {err}"
        check_output(arguments, out, err)
        return Ended(code, out, err)

    @property
    def url(self) -> str:
        """Where the store is."""
        return f"sqlite:///{self.folder / 'legacy.db'}"

    def seeded(self, *options: str, count: int = 20) -> None:
        """Create the ledger, and *count* timeouts of the endpoint Sales."""
        self("db", "upgrade")
        self("seed", "--yes", "--endpoint", "Sales", "--count", str(count), "--seed", "1", *options)

    def claimed(self, rows: int, name: str = "Sales") -> None:
        """Let a run whose owner is gone claim so many *rows* of an endpoint as the next batch."""
        site = Site(open_engine(self.url))
        lease = site.lease()
        endpoint = StoreEndpoint(name=EndpointName(name), source=f"{name}_TimeoutData")
        site.claim(endpoint, lease, due_until=datetime.max.replace(tzinfo=UTC), max_rows=rows)
        site.leases.release(lease)
        site.engine.dispose()

    def record(self, state: str, *, number: int = 1, **columns: str) -> None:
        """Write batch *number* of Sales, with nothing in it, into an upgraded ledger."""
        given = {"first_due": "2020-01-01 00:00:00.000", "last_due": "2020-01-01 00:00:00.000"}
        given |= columns
        self.change(
            "INSERT OR IGNORE INTO migrator_run"
            " (id, endpoint, source, options, tool_version, status, begun_at) VALUES"
            " (1, 'Sales', 'Sales_TimeoutData', '{}', '0', 'done', '2026-01-01 00:00:00.000')",
            "INSERT INTO migrator_batch (id, run_id, endpoint, source, lane, mode, state, attempt,"
            f" size, body_bytes, lease_token, {', '.join(given)}) VALUES ({number}, 1, 'Sales',"
            f" 'Sales_TimeoutData', 0, 'staged', '{state}', 1, 7, 9, 1,"
            f" {', '.join(repr(text) for text in given.values())})",
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what *query* finds in the store."""
        engine = open_engine(self.url)
        with reading(engine) as connection:
            found = [tuple(row) for row in connection.execute(text(query))]
        engine.dispose()
        return found

    def change(self, *statements: str) -> None:
        """Change the store behind the program's back."""
        engine = open_engine(self.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Program]:
    """The program in an empty folder, without any setting but the store's address."""
    for name in [name for name in os.environ if name.startswith("MIGRATOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    made = Program(tmp_path, capsys)
    monkeypatch.setenv("MIGRATOR_STORE__URL", made.url)
    monkeypatch.setattr(Broker, "facts", made.broker)
    counted = cast(
        "LevelAccess", Depths(made.broker)
    )  # by verify without --deep, which only counts
    monkeypatch.setattr("migrator.app.verify.level_access", lambda *_, **__: counted)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield made
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = handlers, level
