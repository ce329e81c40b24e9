"""What ``migrator db resolve`` works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.app.ledger import Ledger, open_ledger
from migrator.recovery.resolve import Resolver, UnresolvedBatches

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.stores.documents.claims import DocumentClaims


class _Documents:
    """A document store; opened when it is first asked, since most batches need none."""

    def __init__(self, settings: Settings, ledger: Ledger, ends: ExitStack) -> None:
        self._settings = settings
        self._ledger = ledger
        self._ends = ends

    @cached_property
    def claims(self) -> DocumentClaims:
        from migrator.app.stores import open_documents

        opened = open_documents(self._settings, self._ledger)
        return self._ends.enter_context(opened).claims


@contextmanager
def open_resolver(settings: Settings, *, is_store_lost: bool) -> Iterator[Resolver]:
    """Open what records an operator's decisions about unresolved batches.

    Raises:
        PreflightRefused: There is no ledger that can be used.
    """
    with ExitStack() as ends:
        ledger = ends.enter_context(open_ledger(settings))
        has_documents = settings.store.kind.has_own_ledger
        yield Resolver(
            queries=ledger.queries,
            batches=ledger.batches,
            unresolved=UnresolvedBatches(ledger.engine, ledger.tables),
            runs=ledger.runs,
            documents=_Documents(settings, ledger, ends) if has_documents else None,
            store_kind=str(settings.store.kind),
            is_store_lost=is_store_lost,
        )
