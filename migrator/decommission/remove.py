"""Removing what the timeout manager left: look, cut, wait, look again, delete.

Each step may be the last that a killed process takes. What is about to be cut is in the ledger
first, so that the next process can make it again; a queue is deleted only after it was seen empty
twice while nothing led to it; whatever prevents it before that makes all bindings again.
Source: docs/decommission.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from migrator.decommission.broker import DecommissionBroker
from migrator.decommission.queries import (
    BEGUN,
    ENDED,
    UNDONE,
    DecommissionLedger,
    DecommissionStore,
)
from migrator.decommission.report import (
    Facts,
    Options,
    Outcome,
    Plan,
    Refusal,
    Report,
    Target,
    bindings_record,
)
from migrator.decommission.rules import make_plan, still_whole
from migrator.errors import MigratorError, TargetError
from migrator.ledger.exclusive import exclusive
from migrator.ledger.lease_keeper import is_surely_dead
from migrator.ledger.leases import SqlLeases
from migrator.ledger.runs import SqlRuns
from migrator.ledger.work import FaultPoint, StoreEndpoint
from migrator.nservicebus.timeouts import RECALL_LANE, Lane
from migrator.rabbitmq.entities import Binding, Entity

_LOOKS: Final = 2
"""One look could be at counts from before the cut."""


@dataclass(frozen=True, kw_only=True)
class Decommission:
    """Removes one endpoint's things, or says what would go."""

    target: Target
    options: Options
    broker: DecommissionBroker
    store: DecommissionStore
    ledger: DecommissionLedger
    runs: SqlRuns
    """The audit log."""
    leases: SqlLeases
    """Keep others away while it works."""
    lease: timedelta
    """How long each is held at a time."""
    dispatcher_lane: Callable[[StoreEndpoint], Lane]
    """Finds the lane of an endpoint's dispatcher, or makes it."""
    owner: str
    """This process, whose own leases are no reason against."""
    fault: FaultPoint
    """Called at each step."""
    pause: Callable[[float], None] = time.sleep
    """Waits for so many seconds."""

    @property
    def _source(self) -> str:
        return self.target.endpoint.source

    def planned(self, *, is_dry: bool) -> Report:
        """Return what would be done now, and why not; changes nothing.

        Raises:
            MigratorError: Somebody could not be asked.
        """
        plan = self._plan()
        is_announced = is_dry or not plan.refusals  # what is refused is not done
        return Report(
            target=self.target,
            is_dry=is_dry,
            wants_drop=self.options.drops_table,
            sql=self.store.statements(self._source),
            refusals=plan.refusals,
            unbind=plan.unbind if is_announced else (),
            delete=plan.delete if is_announced else (),
            keep=plan.keep,
            bind_again=still_whole(plan.bind_again, () if plan.refusals else plan.delete),
            notes=plan.notes,
        )

    def carried_out(self, planned: Report) -> Report:
        """Do what ``planned`` said, as far as it is still so, and return what was done.

        Raises:
            PreflightRefused: Somebody recalls, decommissions, or is the endpoint's dispatcher.
            MigratorError: See ``run``.
        """
        with self.alone() as guard:
            done = self.run(guard)
        return replace(
            planned,
            refusals=done.refusals,
            unbind=[each for each in done.unbound if each not in done.bound_again],
            delete=done.deleted,
            keep=done.keep,
            bind_again=done.bound_again,
            is_done=not done.refusals,
            is_table_dropped=done.is_table_dropped,
        )

    @contextmanager
    def alone(self) -> Iterator[Callable[[], None]]:
        """Keep others from beginning; yield what raises ``LeaseLost`` when that is over.

        The recall's lane keeps hand-over, recalls and other decommissions from beginning, the
        lane of the endpoint's dispatcher keeps that away. Leases of dead owners are ended first.
        """
        name = self.target.endpoint.name
        lanes = {
            RECALL_LANE: "a recall or another decommission is under way; wait until it has ended",
            self.dispatcher_lane(self.target.endpoint): (
                f"migrator is the timeout manager of {name} now; stop that `migrator run`"
            ),
        }
        with exclusive(
            self.leases,
            lanes,
            doing=f"decommissioning {name}",
            duration=self.lease,
            owner=self.owner,
        ) as held:

            def guard() -> None:
                for each in held:
                    each.check()

            yield guard

    def run(self, guard: Callable[[], None]) -> Outcome:
        """Remove what the plan of this moment says; repeating goes on after a crash.

        *guard* raises when the leases that keep others away are lost; see ``alone``.

        Raises:
            MigratorError: Somebody did not answer, or a permission is missing. What could be
                bound again is; what was deleted stays so. Run it again.
        """
        plan = self._plan()
        if plan.refusals:
            return self._refused(plan)
        done = Outcome(unbound=plan.unbind, keep=plan.keep)
        if not (plan.delete or plan.drops_table or plan.bind_again):
            return done
        cut = (*plan.unbind, *plan.bind_again)
        self._record(BEGUN, cut)
        self.fault("decommission.begun")
        if plan.delete:
            self._clear_broker(plan, cut, done, guard)
        else:  # what an earlier one cut of ours may be needed now
            self._bind(cut, done)
        if not done.refusals:
            done.refusals = self._drop(done, guard)
        self._record(UNDONE if done.refusals else ENDED, done.not_bound, done)
        return done

    # ── the steps ───────────────────────────────────────────────────────────────────────────

    def _clear_broker(
        self, plan: Plan, cut: Sequence[Binding], done: Outcome, guard: Callable[[], None]
    ) -> None:
        try:
            done.refusals = self._remove(plan, done, guard)
        except BaseException as exc:  # also Ctrl-C while it waits: nothing may stay cut
            self._bind_after(exc, still_whole(cut, done.deleted), done)
            raise
        self._bind(still_whole(cut, done.deleted), done)

    def _remove(self, plan: Plan, done: Outcome, guard: Callable[[], None]) -> Sequence[Refusal]:
        with self.broker.editor() as editor:
            for binding in plan.unbind:
                guard()
                editor.unbind(binding)
                self.fault("decommission.unbound")
        now = plan
        for _ in range(_LOOKS):
            self.pause(self.options.wait_s / _LOOKS)
            now = self._plan()
            if now.refusals:
                return now.refusals
        self.fault("decommission.checked")
        done.keep = now.keep
        return self._delete([each for each in plan.delete if each in now.delete], done, guard)

    def _delete(
        self, entities: Sequence[Entity], done: Outcome, guard: Callable[[], None]
    ) -> Sequence[Refusal]:
        with self.broker.editor() as editor:
            for entity in entities:
                guard()
                why = editor.delete(entity)
                if why is not None:
                    return (_still_there(entity, why),)
                done.deleted.append(entity)
                self.fault("decommission.deleted")
        return ()

    def _drop(self, done: Outcome, guard: Callable[[], None]) -> Sequence[Refusal]:
        if not self.options.drops_table:
            return ()
        guard()  # a recall could be bringing rows back
        rows = self.store.drop(self._source)
        if rows:
            text = f"{rows} rows came into {self._source}; it was not dropped"
            remedy = "find out who stores them; everything on the broker is gone already"
            return (Refusal(code="rows_in_table", text=text, remedy=remedy),)
        done.is_table_dropped = True
        self.fault("decommission.dropped")
        return ()

    # ── undoing ─────────────────────────────────────────────────────────────────────────────

    def _refused(self, plan: Plan) -> Outcome:
        """Make again what an earlier one cut before it was killed; else nothing is done."""
        done = Outcome(refusals=plan.refusals, keep=plan.keep)
        if plan.bind_again:
            self._bind(plan.bind_again, done)
            self._record(UNDONE, done.not_bound, done)
        return done

    def _bind(self, bindings: Sequence[Binding], done: Outcome) -> None:
        if not bindings:
            return
        with self.broker.editor() as editor:
            made = [binding for binding in reversed(bindings) if editor.bind(binding)]
        done.bound_again = [each for each in bindings if each in made]
        done.not_bound = [each for each in bindings if each not in made]

    def _bind_after(self, exc: BaseException, bindings: Sequence[Binding], done: Outcome) -> None:
        try:
            self._bind(bindings, done)
        except MigratorError as failed:
            raise TargetError(
                f"{str(exc) or type(exc).__name__}; and what was unbound could not be bound "
                f"again: {failed}. Run it again at once"
            ) from exc

    # ── looking and noting ──────────────────────────────────────────────────────────────────

    def _plan(self) -> Plan:
        source = self._source
        facts = Facts(
            target=self.target,
            rows=self.store.rows(source),
            is_table_shared=self.store.is_shared,
            vendor_runs=self.store.vendor_runs(),
            others_with_rows=self.store.others_with_rows(source),
            ledger=self.ledger.look(
                source, ignoring=lambda other: other == self.owner or is_surely_dead(other)
            ),
            broker=self.broker.look(self.target.queue),
            unfinished=self.ledger.unfinished(source),
        )
        return make_plan(facts, self.options)

    def _record(self, kind: str, cut: Sequence[Binding], done: Outcome | None = None) -> None:
        detail: dict[str, object] = {
            "endpoint": str(self.target.endpoint.name),
            "source": self._source,
            "queue": str(self.target.queue),
            "bindings": bindings_record(cut),
        }
        self.runs.record(kind, detail=detail | (done.record if done else {}), batch=None)


def _still_there(entity: Entity, why: str) -> Refusal:
    return Refusal(
        code="still_there",
        text=f"{entity.kind} {entity.name} was not deleted: {why}",
        remedy="what was deleted before it stays so; the rest is bound again. Look, and run it "
        "once more",
    )
