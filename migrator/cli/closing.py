"""Closing what is half done and whose document store is gone: what is asked first, and recorded.

Rules of this file: while the store answers, nothing is closed, whatever the operator says; what
is recorded is recorded with the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from migrator.app import App
from migrator.cli.output import say
from migrator.cli.session import confirmed
from migrator.errors import ConfigError, PreflightRefused, SourceElsewhere, SourceGone, StoreError
from migrator.ledger.operator_actions import HalfDoneOutcome
from migrator.ledger.returning import TOWARDS, GoingBack, ReturnOutcome
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.work import Batch, StoreEndpoint

if TYPE_CHECKING:
    from migrator.stores.documents.claims import DocumentClaims


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
        evidence = Evidence(self._app, store_is_gone=self._store_is_gone)
        return evidence.that_it_is_gone(
            lambda claims: claims.still_there(self._batch),
            finish="`migrator run --once` or `migrator rollback` finishes the batch",
        )


class ClosingRows:
    """The rows of one settled batch that go back one by one, and what their store says of them."""

    def __init__(self, app: App, going: Sequence[GoingBack], *, store_is_gone: bool) -> None:
        """Close *going*, all of one batch; a store that does not answer as ``Closing`` says."""
        self._app = app
        self._going = going
        self._store_is_gone = store_is_gone

    def close(self, outcome: str, *, yes: bool, is_dry_run: bool) -> dict[str, object]:
        """Record *outcome* with the evidence; see ``Closing``, which raises the same."""
        decided = _return_outcome(outcome, self._going)
        (going,) = [each for each in self._going if each.towards is TOWARDS[decided]]
        evidence = self._evidence(going)
        told: dict[str, object] = {
            "batch": going.batch,
            "as": outcome,
            "state": f"going back, {going.towards}",
            "source": going.source,
            "rows": going.rows,
            "evidence": evidence,
        }
        say(f"{going.rows} rows of batch {going.batch} go back to {going.source}: {evidence}")
        if is_dry_run:
            return told
        confirmed(yes=yes, what=f"{going.rows} rows would be recorded as {outcome}")
        event = self._app.runs.event("batch_resolved", detail=told, batch=going.batch)
        self._app.returning.close(going, decided, evidence=evidence, event=event)
        return told

    def _evidence(self, going: GoingBack) -> str:
        ids = self._app.returning.ids(going)
        endpoint = StoreEndpoint(name=going.endpoint, source=going.source)
        evidence = Evidence(self._app, store_is_gone=self._store_is_gone)
        return evidence.that_it_is_gone(
            lambda claims: claims.count_there(endpoint, ids),
            finish="`migrator rollback` or `migrator recall` finishes it",
        )


class Evidence:
    """Asks a store what it has, to hear that it is gone."""

    def __init__(self, app: App, *, store_is_gone: bool) -> None:
        """Ask the store of *app*; one that does not answer counts as gone if *store_is_gone*."""
        self._app = app
        self._store_is_gone = store_is_gone

    def that_it_is_gone(self, ask: Callable[[DocumentClaims], int], *, finish: str) -> str:
        """Return how it is known that the store which *ask* asks is gone.

        Args:
            ask: Returns how many of the timeouts it has.
            finish: What to do instead, when it answers.

        Raises:
            PreflightRefused: It answers, or may do so later.
        """
        try:
            there = self._answer(ask)
        except SourceGone as exc:
            if not isinstance(exc, SourceElsewhere):
                return str(exc)
            return self._word_of_operator(exc)
        except StoreError as exc:
            return self._word_of_operator(exc)
        raise PreflightRefused(
            f"the store answers, and has {there} of its timeouts: {finish} by what the store "
            "tells. Nothing was changed"
        )

    def _answer(self, ask: Callable[[DocumentClaims], int]) -> int:
        if (side := self._app.document_side) is not None:
            return ask(side.claims)
        raise SourceElsewhere(f"store.kind is {self._app.settings.store.kind} now")

    def _word_of_operator(self, why: StoreError) -> str:
        if self._store_is_gone:
            return f"{why}; by the word of the operator, the store is gone"
        raise PreflightRefused(
            f"the store may still tell what became of it ({why}); if it is gone for good, say "
            "--store-is-gone. Nothing was changed"
        ) from why


def _return_outcome(outcome: str, going: Sequence[GoingBack]) -> ReturnOutcome:
    allowed = [each for each in ReturnOutcome if TOWARDS[each] in {g.towards for g in going}]
    if outcome in allowed:
        return ReturnOutcome(outcome)
    what = " and ".join(_DOING[each.towards] for each in going)
    raise ConfigError(f"rows {what} are {' or '.join(allowed)}")


_DOING: Final = {
    RowState.RECALLED: "that were being recalled",
    RowState.RELEASED: "on their way out of quarantine",
}


def _outcome(outcome: str) -> HalfDoneOutcome:
    if outcome == "claimed":
        return BatchState.CLAIMED
    if outcome == "written-off":
        return BatchState.RELEASED
    raise ConfigError("a half-done batch was never passed on: it is claimed or written-off")
