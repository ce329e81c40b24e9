"""What ``migrator status`` works with where no daemon answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.app.ledger import Ledger, open_ledger
from migrator.status.document import StatusDocument
from migrator.status.reader import LedgerReader, StoreReader

if TYPE_CHECKING:
    from migrator.config import Settings


def new_ledger_reader(settings: Settings, ledger: Ledger) -> LedgerReader:
    """Return what reads the ledger."""
    return LedgerReader(
        engine=ledger.engine,
        tables=ledger.tables,
        queries=ledger.queries,
        purge_after=settings.ledger.purge_after,
        shows_probe=settings.probe.every is not None,
    )


class StatusReader:
    """Reads ``migrator/status/1`` without a daemon; opens the store once there is a run."""

    def __init__(self, settings: Settings, ledger: Ledger, ends: ExitStack) -> None:
        self._settings = settings
        self._ledger = ledger
        self._ends = ends
        self._reader = new_ledger_reader(settings, ledger)

    @cached_property
    def _stores(self) -> StoreReader:
        from migrator.app.remaining import open_remaining_reader

        reader = open_remaining_reader(self._settings, self._ledger)
        return StoreReader(
            queries=self._ledger.queries,
            remaining=self._ends.enter_context(reader),
            modes={each.name: str(each.mode) for each in self._settings.endpoints},
        )

    def document(self) -> StatusDocument:
        """Return it as of now.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be read.
        """
        runs = self._ledger.queries.latest_runs()
        if not runs:
            progress = self._ledger.queries.progress()
            return self._reader.document(progress, (), told_by="ledger", not_counted={})
        progress, views = self._stores.read(runs)
        return self._reader.document(
            progress, views, told_by="ledger", not_counted=self._stores.not_counted
        )


@contextmanager
def open_status(settings: Settings) -> Iterator[StatusReader]:
    """Open the ledger that *settings* name.

    Raises:
        PreflightRefused: There is none that can be used.
    """
    with ExitStack() as ends:
        ledger = ends.enter_context(open_ledger(settings))
        yield StatusReader(settings, ledger, ends)
