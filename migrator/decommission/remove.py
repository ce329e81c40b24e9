"""Removing what the timeout manager left: look, cut, wait, look again, delete.

Each step may be the last that a killed process takes. What is about to be cut is in the ledger
first, so that the next process can make it again; a queue is deleted only after it was seen empty
twice while nothing led to it; whatever prevents it before that makes all bindings again.
Source: docs/decommission.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from migrator.decommission.broker import DecommissionBroker
from migrator.decommission.queries import BEGUN, ENDED, UNDONE, DecommissionDatabase
from migrator.decommission.rules import (
    Options,
    Plan,
    Refusal,
    Target,
    bindings_record,
    make_plan,
    still_whole,
)
from migrator.errors import MigratorError, TargetError
from migrator.ledger.batches import SqlRuns
from migrator.ledger.lease_keeper import exclusive, is_surely_dead
from migrator.ledger.leases import SqlLeases
from migrator.ledger.work import FaultPoint
from migrator.nservicebus.timeouts import RECALL_LANE
from migrator.rabbitmq.entities import Binding, Entity
from migrator.text import counted

_LOOKS: Final = 2
"""One look could be at counts from before the cut."""


@dataclass(frozen=True, kw_only=True)
class Decommission:
    """Removes one endpoint's things, or says what would go."""

    target: Target
    options: Options
    broker: DecommissionBroker
    database: DecommissionDatabase
    runs: SqlRuns
    """The audit log."""
    leases: SqlLeases
    """Keep others away while it works."""
    lease: timedelta
    """How long each is held at a time."""
    owner: str
    """This process, whose own leases are no reason against."""
    fault: FaultPoint
    """Called at each step."""
    pause: Callable[[float], None] = time.sleep
    """Waits for so many seconds."""

    def planned(self) -> Plan:
        """Return what would be done now, and why not; changes nothing.

        Raises:
            MigratorError: Somebody could not be asked.
        """
        plan = self._plan()
        gone = () if plan.refusals else plan.delete
        return replace(plan, bind_again=still_whole(plan.bind_again, gone))

    def statements(self) -> Mapping[str, str]:
        """Return what archives the table, and what drops it; empty when it is gone, or shared."""
        return self.database.statements(self.target.source)

    @contextmanager
    def alone(self) -> Iterator[Callable[[], None]]:
        """Keep others from beginning; yield what raises ``LeaseLost`` when that is over.

        The recall's lane keeps hand-over, recalls and other decommissions from beginning, the
        lane of the endpoint's dispatcher keeps that away. Leases of dead owners are ended first.

        Raises:
            PreflightRefused: Somebody recalls, decommissions, or is the endpoint's dispatcher.
        """
        endpoint = self.target.endpoint
        lanes = {
            RECALL_LANE: "a recall or another decommission is under way; wait until it has ended",
            self.leases.dispatcher_lane(endpoint): (
                f"migrator is the timeout manager of {endpoint.name} now; stop that `migrator run`"
            ),
        }
        doing = f"decommissioning {endpoint.name}"
        with exclusive(
            self.leases, lanes, doing=doing, duration=self.lease, owner=self.owner
        ) as held:

            def guard() -> None:
                for each in held:
                    each.check()

            yield guard

    def run(self, guard: Callable[[], None]) -> Plan:
        """Remove what the plan of this moment says, and return what was done; see ``alone``.

        Repeating goes on after a crash. *guard* raises when others are not kept away any more.

        Raises:
            MigratorError: Somebody did not answer, or a permission is missing. What could be
                bound again is; what was deleted stays so. Run it again.
        """
        plan = self._plan()
        done = Plan(refusals=plan.refusals, keep=plan.keep, notes=plan.notes)
        cut = (*plan.unbind, *plan.bind_again)
        if plan.refusals:  # what an earlier one cut before it was killed is made again
            cut = (*plan.bind_again,)
            if cut:
                self._record(UNDONE, self._bind(cut, done), done)
            return done
        if cut or plan.delete or plan.drops_table:
            self._record(BEGUN, cut)
            self.fault("decommission.begun")
            not_bound = self._clear_broker(plan, cut, done, guard)
            done.unbind = [each for each in plan.unbind if each not in done.bind_again]
            if not done.refusals:
                self._drop(done, guard)
            self._record(UNDONE if done.refusals else ENDED, not_bound, done)
        done.is_done = not done.refusals
        return done

    # ── the steps ───────────────────────────────────────────────────────────────────────────

    def _clear_broker(
        self, plan: Plan, cut: Sequence[Binding], done: Plan, guard: Callable[[], None]
    ) -> Sequence[Binding]:
        """Remove entities, and bind again whatever is whole; return what could not be bound."""
        try:
            if plan.delete:  # else what an earlier one cut of ours may be needed now
                self._remove(plan, done, guard)
        except BaseException as exc:  # also Ctrl-C while it waits: nothing may stay cut
            try:
                self._bind(still_whole(cut, done.delete), done)
            except MigratorError as failed:
                raise TargetError(
                    f"{str(exc) or type(exc).__name__}; and what was unbound could not be bound "
                    f"again: {failed}. Run it again at once, to bind it"
                ) from exc
            raise
        return self._bind(still_whole(cut, done.delete), done)

    def _remove(self, plan: Plan, done: Plan, guard: Callable[[], None]) -> None:
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
                done.refusals = now.refusals
                return
        self.fault("decommission.checked")
        done.keep = now.keep
        self._delete([each for each in plan.delete if each in now.delete], done, guard)

    def _delete(self, entities: Collection[Entity], done: Plan, guard: Callable[[], None]) -> None:
        with self.broker.editor() as editor:
            for entity in entities:
                guard()
                if why := editor.delete(entity):
                    refusal = Refusal(
                        code="still_there",
                        text=f"{entity.kind} {entity.name} was not deleted: {why}",
                        remedy="what was deleted before stays deleted; the rest is bound again. "
                        "Check why, and run it again",
                    )
                    done.refusals = (refusal,)
                    return
                done.delete = (*done.delete, entity)
                self.fault("decommission.deleted")

    def _drop(self, done: Plan, guard: Callable[[], None]) -> None:
        if not self.options.drops_table:
            return
        guard()  # a recall could be bringing rows back
        source = self.target.source
        if rows := self.database.drop(source):
            refusal = Refusal(
                code="rows_in_table",
                text=f"{counted(rows, 'row was', 'rows were')} stored in {source} meanwhile; it "
                "was not dropped",
                remedy="find out what stores them; everything on the broker is deleted already",
            )
            done.refusals = (refusal,)
            return
        done.drops_table = True
        self.fault("decommission.dropped")

    def _bind(self, bindings: Sequence[Binding], done: Plan) -> Sequence[Binding]:
        """Make *bindings* again; return those of which an end is gone.

        The audit log remembers them, and the next one tries again.
        """
        if not bindings:
            return ()
        with self.broker.editor() as editor:
            made = [binding for binding in reversed(bindings) if editor.bind(binding)]
        done.bind_again = [each for each in bindings if each in made]
        return [each for each in bindings if each not in made]

    # ── looking and noting ──────────────────────────────────────────────────────────────────

    def _plan(self) -> Plan:
        database = self.database.look(
            self.target.source,
            ignoring=lambda other: other == self.owner or is_surely_dead(other),
        )
        return make_plan(self.target, database, self.broker.look(self.target.queue), self.options)

    def _record(self, kind: str, cut: Sequence[Binding], done: Plan | None = None) -> None:
        detail: dict[str, object] = {
            "endpoint": str(self.target.endpoint.name),
            "source": self.target.source,
            "queue": str(self.target.queue),
            "bindings": bindings_record(cut),
        }
        if done is not None:
            detail |= {
                "deleted": [f"{each.kind} {each.name}" for each in done.delete],
                "refusals": [each.code for each in done.refusals],
                "table_dropped": done.drops_table,
            }
        self.runs.record(kind, detail=detail, batch=None)
