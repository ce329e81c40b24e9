"""Removing what nobody needs any more: look, cut, wait, look again, delete.

Each step may be the last that a killed process takes. What is about to be cut is in the ledger
first, so that the next process can make it again; a queue is deleted only after it was seen empty
twice while nothing led to it; whatever speaks against it before that makes all bindings again.
Source: docs/decommission.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from migrator.decommission.plan import make_plan
from migrator.decommission.ports import DecommissionBroker, DecommissionLedger, DecommissionStore
from migrator.decommission.record import BEGUN, ENDED, UNDONE, bindings_record
from migrator.decommission.rules import Facts, Kept, Neighbours, Plan, Refusal, Wishes, still_whole
from migrator.errors import MigratorError, TargetError
from migrator.ledger.ports import Runs
from migrator.ledger.work import FaultPoint, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity

_LOOKS: Final = 2
"""One look could be at counts from before the cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose things are to go, as settings say it."""

    endpoint: StoreEndpoint
    queue: QueueName
    is_dispatched: bool = False
    forwarding: Sequence[EndpointName] = ()
    sharing: Sequence[EndpointName] = ()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was done."""

    refusals: Sequence[Refusal] = ()
    """Empty: all of it was done."""
    unbound: Sequence[Binding] = ()
    deleted: list[Entity] = field(default_factory=list)
    keep: Sequence[Kept] = ()
    bound_again: Sequence[Binding] = ()
    not_bound: Sequence[Binding] = ()
    """Was to be bound again, but an end of it is gone; the audit trail remembers it."""
    is_table_dropped: bool = False


class Surveyor:
    """Looks at all sides, and changes nothing."""

    def __init__(
        self,
        *,
        broker: DecommissionBroker,
        store: DecommissionStore,
        ledger: DecommissionLedger,
        vendor_runs: Callable[[], Sequence[str]],
        ignoring: Callable[[str], bool],
    ) -> None:
        """Prepare; leases of owners that *ignoring* says yes to are nobody's work."""
        self._broker = broker
        self._store = store
        self._ledger = ledger
        self._vendor_runs = vendor_runs
        self._ignoring = ignoring

    def facts(self, subject: Subject) -> Facts:
        """Return everything a plan is made from, as it is now.

        Raises:
            MigratorError: Somebody could not be asked.
        """
        source = subject.endpoint.source
        return Facts(
            queue=subject.queue,
            source=source,
            rows=self._store.rows(source),
            is_table_shared=self._store.is_shared,
            vendor_runs=self._vendor_runs(),
            is_dispatched=subject.is_dispatched,
            ledger=self._ledger.look(source, ignoring=self._ignoring),
            neighbours=Neighbours(
                with_rows=self._store.others_with_rows(source),
                forwarding=subject.forwarding,
                sharing=subject.sharing,
            ),
            broker=self._broker.look(subject.queue),
            unfinished=self._ledger.unfinished(source),
        )


class Decommission:
    """Carries a plan out; the caller holds the leases that keep others away."""

    def __init__(
        self,
        *,
        surveyor: Surveyor,
        broker: DecommissionBroker,
        store: DecommissionStore,
        runs: Runs,
        wishes: Wishes,
        wait_s: float,
        pause: Callable[[float], None],
        fault: FaultPoint,
        guard: Callable[[], None],
    ) -> None:
        """Prepare; nothing is touched.

        Args:
            surveyor: Looks at all sides.
            broker: Whose entities go.
            store: Whose table goes, if that is wished for.
            runs: The audit trail.
            wishes: What is asked for beyond the broker's side.
            wait_s: How long things stay unbound before they are deleted.
            pause: Waits for so many seconds.
            fault: Called at each step.
            guard: Raises when the leases are lost.
        """
        self._surveyor = surveyor
        self._broker = broker
        self._store = store
        self._runs = runs
        self._wishes = wishes
        self._wait_s = wait_s
        self._pause = pause
        self._fault = fault
        self._guard = guard

    def run(self, subject: Subject) -> Outcome:
        """Remove what the plan of this moment says; repeating goes on after a crash.

        Raises:
            MigratorError: Somebody did not answer, or a permission is missing. What could be
                bound again is; what was deleted stays so. Run it again.
        """
        plan = self._plan(subject)
        if plan.refusals:
            return self._refused(subject, plan)
        done = Outcome(unbound=plan.unbind, keep=plan.keep)
        if not (plan.delete or plan.drops_table or plan.bind_again):
            return done
        cut = (*plan.unbind, *plan.bind_again)
        self._record(BEGUN, subject, cut)
        self._fault("decommission.begun")
        if plan.delete:
            self._clear_broker(subject, plan, cut, done)
        else:  # what an earlier one cut of ours may be needed now
            self._bind(cut, done)
        if not done.refusals:
            done.refusals = self._drop(subject, done)
        self._record(UNDONE if done.refusals else ENDED, subject, done.not_bound, done)
        return done

    # ── the steps ───────────────────────────────────────────────────────────────────────────

    def _clear_broker(
        self, subject: Subject, plan: Plan, cut: Sequence[Binding], done: Outcome
    ) -> None:
        try:
            done.refusals = self._remove(subject, plan, done)
        except BaseException as exc:  # also Ctrl-C while it waits: nothing may stay cut
            self._bind_after(exc, still_whole(cut, done.deleted), done)
            raise
        self._bind(still_whole(cut, done.deleted), done)

    def _remove(self, subject: Subject, plan: Plan, done: Outcome) -> Sequence[Refusal]:
        with self._broker.hands() as hands:
            for binding in plan.unbind:
                self._guard()
                hands.unbind(binding)
                self._fault("decommission.unbound")
        now = plan
        for _ in range(_LOOKS):
            self._pause(self._wait_s / _LOOKS)
            now = self._plan(subject)
            if now.refusals:
                return now.refusals
        self._fault("decommission.checked")
        done.keep = now.keep
        return self._delete([each for each in plan.delete if each in now.delete], done)

    def _delete(self, entities: Sequence[Entity], done: Outcome) -> Sequence[Refusal]:
        with self._broker.hands() as hands:
            for entity in entities:
                self._guard()
                why = hands.delete(entity)
                if why is not None:
                    return (_still_there(entity, why),)
                done.deleted.append(entity)
                self._fault("decommission.deleted")
        return ()

    def _drop(self, subject: Subject, done: Outcome) -> Sequence[Refusal]:
        if not self._wishes.drops_table:
            return ()
        self._guard()  # a recall could be bringing rows back
        rows = self._store.drop(subject.endpoint.source)
        if rows:
            text = f"{rows} rows came into {subject.endpoint.source}; it was not dropped"
            remedy = "find out who stores them; everything on the broker is gone already"
            return (Refusal(code="rows_in_table", text=text, remedy=remedy),)
        done.is_table_dropped = True
        self._fault("decommission.dropped")
        return ()

    # ── undoing ─────────────────────────────────────────────────────────────────────────────

    def _refused(self, subject: Subject, plan: Plan) -> Outcome:
        """Make again what an earlier one cut before it was killed; else nothing is done."""
        done = Outcome(refusals=plan.refusals, keep=plan.keep)
        if plan.bind_again:
            self._bind(plan.bind_again, done)
            self._record(UNDONE, subject, done.not_bound, done)
        return done

    def _bind(self, bindings: Sequence[Binding], done: Outcome) -> None:
        if not bindings:
            return
        with self._broker.hands() as hands:
            made = [binding for binding in reversed(bindings) if hands.bind(binding)]
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

    def _plan(self, subject: Subject) -> Plan:
        return make_plan(self._surveyor.facts(subject), self._wishes)

    def _record(
        self,
        kind: str,
        subject: Subject,
        cut: Sequence[Binding],
        done: Outcome | None = None,
    ) -> None:
        detail: dict[str, object] = {
            "endpoint": str(subject.endpoint.name),
            "source": subject.endpoint.source,
            "queue": str(subject.queue),
            "bindings": bindings_record(cut),
        }
        self._runs.record(kind, detail=detail | _told(done), batch=None)


def _told(done: Outcome | None) -> dict[str, object]:
    if done is None:
        return {}
    return {
        "deleted": [f"{each.kind} {each.name}" for each in done.deleted],
        "refusals": [each.code for each in done.refusals],
        "table_dropped": done.is_table_dropped,
    }


def _still_there(entity: Entity, why: str) -> Refusal:
    return Refusal(
        code="still_there",
        text=f"{entity.kind} {entity.name} was not deleted: {why}",
        remedy="what was deleted before it stays so; the rest is bound again. Look, and run it "
        "once more",
    )
