"""Closing a half-done batch whose document store is gone: what is asked first, and recorded."""

from __future__ import annotations

from migrator.cli.output import say
from migrator.cli.session import confirmed
from migrator.domain.states import BatchState
from migrator.errors import ConfigError, PreflightRefused, SourceElsewhere, SourceGone, StoreError
from migrator.ledger.upkeep import HalfDoneOutcome
from migrator.ports import Batch
from migrator.wiring import App


class Closing:
    """One half-done batch, and what its store says of it."""

    def __init__(self, app: App, batch: Batch, *, store_is_gone: bool) -> None:
        """Close *batch*; one that does not answer counts as gone if *store_is_gone*."""
        self._app = app
        self._batch = batch
        self._store_is_gone = store_is_gone

    def close(self, outcome: str, *, yes: bool, is_dry_run: bool) -> dict[str, object]:
        """Record *outcome* with the evidence; return what was, or would be, done.

        Raises:
            ConfigError: *outcome* is none of a half-done batch, or ``--yes`` is missing.
            PreflightRefused: The store answers, or may do so later. Nothing was changed.
            LedgerError: A process holds the lane. Nothing was changed.
        """
        batch, towards = self._batch, _outcome(outcome)
        evidence = self._evidence()
        told: dict[str, object] = {
            "batch": batch.id,
            "as": outcome,
            "state": batch.state,
            "source": batch.source,
            "rows": batch.size,
            "evidence": evidence,
        }
        say(f"batch {batch.id} is {batch.state}, {batch.size} rows of {batch.source}: {evidence}")
        if is_dry_run:
            return told
        confirmed(yes=yes, what=f"batch {batch.id} would be recorded as {outcome}")
        event = self._app.runs.event("batch_resolved", detail=told, batch=batch.id)
        self._app.upkeep.close_half_done(batch.id, towards, evidence=evidence, event=event)
        return told

    def _evidence(self) -> str:
        try:
            there = self._still_there()
        except SourceGone as exc:
            if not isinstance(exc, SourceElsewhere):
                return str(exc)
            return self._word_of_operator(exc)
        except StoreError as exc:
            return self._word_of_operator(exc)
        raise PreflightRefused(
            f"the store answers, and has {there} of its timeouts: `migrator run --once` or "
            "`migrator rollback` finishes the batch by what the store tells. Nothing was changed"
        )

    def _still_there(self) -> int:
        if (side := self._app.document_side) is not None:
            return side.claims.still_there(self._batch)
        raise SourceElsewhere(f"store.kind is {self._app.settings.store.kind} now")

    def _word_of_operator(self, why: StoreError) -> str:
        if self._store_is_gone:
            return f"{why}; by the word of the operator, the store is gone"
        raise PreflightRefused(
            f"the store may still tell what became of it ({why}); if it is gone for good, say "
            "--store-is-gone. Nothing was changed"
        ) from why


def _outcome(outcome: str) -> HalfDoneOutcome:
    if outcome == "claimed":
        return BatchState.CLAIMED
    if outcome == "written-off":
        return BatchState.RELEASED
    raise ConfigError("a half-done batch was never passed on: it is claimed or written-off")
