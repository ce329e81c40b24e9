"""What ``migrator seed`` works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.ledger import Ledger, open_ledger
from migrator.app.stores import StoreBackend, open_backend
from migrator.errors import PreflightRefused, UnknownEndpoint
from migrator.ledger.version import current
from migrator.stores.sql.seeding import INVENTED, SeedRow, SeedSpec, invent

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from migrator.config import Settings


class Seeding:
    """A store into which invented timeouts may be written, and its ledger."""

    def __init__(self, ledger: Ledger, backend: StoreBackend) -> None:
        self._ledger = ledger
        self._backend = backend

    def now(self) -> datetime:
        """Return the database's time."""
        return self._ledger.clock.now()

    def refuse_real(self, name: str) -> None:
        """Refuse to mix invented timeouts with others.

        Raises:
            PreflightRefused: The endpoint called *name* has one that was not invented, or was run:
                its table may be empty because all that was in it is handed over.
        """
        if current(self._ledger.engine, self._ledger.tables) is not None:
            for run in self._ledger.queries.latest_runs():
                if run.endpoint.name == name:
                    raise PreflightRefused(
                        f"the ledger knows endpoint {name}: a run has moved its timeouts, and seed "
                        "is for rehearsals only. Seed another endpoint, or use another database. "
                        "Nothing was written"
                    )
        store = self._backend.store
        try:
            found = store.find(name)
        except UnknownEndpoint:
            return
        for rows in store.scan(found):
            if any(INVENTED not in (row.headers_text or "") for row in rows):
                raise PreflightRefused(
                    f"{found.source} has timeouts that seed did not write, and seed is for "
                    "rehearsals only. Nothing was written"
                )

    def invent(
        self,
        endpoint: str,
        count: int,
        *,
        due: tuple[timedelta, timedelta],
        destinations: list[str],
        body_bytes: int,
        seed: int,
        bad: int,
    ) -> Iterator[SeedRow]:
        """Return *count* timeouts, due within the span *due* from now."""
        now, (soonest, latest) = self.now(), due
        return invent(
            SeedSpec(
                endpoint=endpoint,
                count=count,
                due_from=now + soonest,
                due_until=now + latest,
                destinations=destinations,
                body_bytes=body_bytes,
                seed=seed,
                bad=bad,
            )
        )

    def write(self, endpoint: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write *rows*; return where they are, and how many.

        Raises:
            PreflightRefused: This kind of store cannot be filled by migrator.
        """
        return self._backend.seed(endpoint, rows)


@contextmanager
def open_seeding(settings: Settings) -> Iterator[Seeding]:
    """Open the store and the ledger that *settings* name; the ledger need not exist."""
    with (
        open_ledger(settings, must_exist=False) as ledger,
        open_backend(settings, ledger) as backend,
    ):
        yield Seeding(ledger, backend)
