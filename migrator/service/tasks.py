"""What a running daemon does at intervals, beside its workers: probe, purge, tell, recheck.

Rules of the checks of the broker, made again because somebody may set a policy, make a level anew
or deploy an endpoint again at any time:

* what would refuse a start pauses hand-over until it is gone; nobody has to resume;
* what could not be looked at is reported, and neither pauses nor resumes anything;
* it has a thread of its own, and lanes never wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from migrator.delays import probe
from migrator.delays.capacity import (
    MeasuredCapacity,
    capacity_document,
    find_broker,
    measure_capacity,
    read_capacity,
)
from migrator.delays.documents import ArrivedProbe
from migrator.delays.probe import ProbeRun, probes_text
from migrator.delays.routing import CAPACITY_MEASURED, PROBED, DelaysVersion, probe_delay_s
from migrator.delays.topology import FindBindings
from migrator.errors import Interrupted, MigratorError
from migrator.handover.holding import Holding
from migrator.handover.pacing import ExchangeCost, Pacer
from migrator.ledger.leases import SqlLeases
from migrator.ledger.purge import SettledRows
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.work import Clock
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.context import Finding, Level, Refusal, standing
from migrator.preflight.queries import LedgerFacts
from migrator.preflight.registry import Rechecks
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.service.audit_log import AuditLog
from migrator.service.parked_log import ParkedLog
from migrator.service.schedule import Job
from migrator.service.worker import WorkerPool
from migrator.text import counted, listed
from migrator.throttle.reasons import Signal, Throttle

_log = logging.getLogger(__name__)

_LOOK_AT_HELD_EVERY: Final = timedelta(seconds=3)
"""Asks the broker only about those whose time has come."""

_LOOK_FOR_CAPACITY_EVERY: Final = timedelta(minutes=5)
_COUNT_PROCESSES_EVERY: Final = timedelta(seconds=1)
"""One that joins has as much room as if it were alone for so long."""
_PROBED_FOR_PACE: Final = 10
"""Probes through the levels up to this one tell how fast they let go now; others were sent long
ago."""
_PROBE_PATIENCE_S: Final = 10.0
"""So much later than what is warned of, a probe counts as lost."""

PURGE: Final = "ledger-purge"
PURGED: Final = "ledger_purged"
_PURGE_GRACE: Final = timedelta(days=1)
"""A machine that slept at the time of the purge makes up for it."""
_MOST_PURGED: Final = 1_000_000
"""Rows at a time; the rest waits for the next one."""
_REST_S: Final = 0.05
"""Between two transactions, which are of thousands of rows."""


class ParkedTask:
    """Tries parked destinations whose time has come, and logs which are parked."""

    def __init__(self, holding: Holding, workers: WorkerPool) -> None:
        self._holding = holding
        self._workers = workers
        self._log = ParkedLog()
        self.job = Job("held-destinations", _LOOK_AT_HELD_EVERY, self._check, may_lag=True)

    def _check(self) -> None:
        if self._holding.check_some():
            self._workers.wake()
        if self._log.is_due(now_s := time.monotonic()):
            self._log.report(self._holding.parked(), now_s=now_s)


class ShareTask:
    """Counts the processes that hand over, among which the speed of the levels is divided."""

    def __init__(self, leases: SqlLeases, pacer: Pacer, workers: WorkerPool, owner: str) -> None:
        self._leases = leases
        self._pacer = pacer
        self._workers = workers
        self._owner = owner
        self.job = Job("share-of-levels", _COUNT_PROCESSES_EVERY, self._count, may_lag=True)

    def _count(self) -> None:
        if self._pacer.is_on() and not self._workers.is_resting:
            with suppress(MigratorError):  # the lanes say so; as many as before
                self._pacer.processes = len(self._leases.owners_with_work() | {self._owner})


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysHere:
    """The delays that this process hands over into."""

    connection: ConnectionSettings
    version: DelaysVersion
    find_bindings: FindBindings | None
    """None: there is no management API."""


class ProbeTask:
    """Sends probes through the delay levels, and tells how late they came back.

    * it shares nothing with lanes and dispatchers, and its failures end nobody else's work;
    * while earlier probes are still out, none is sent: in a level that stands still they would
      only add to what has to come out again, and each would need a queue that still exists;
    * told to end in the middle, it goes at once; its queue then waits for the probes, and removes
      itself (see ``delays.probe``).
    """

    def __init__(
        self,
        delays: DelaysHere,
        levels: Sequence[int],
        audit_log: AuditLog,
        pacer: Pacer,
        *,
        every: timedelta,
        warn_after: timedelta,
    ) -> None:
        self._delays = delays
        self._levels = levels
        self._pacer = pacer
        self._audit_log = audit_log
        self._warn_after_s = warn_after.total_seconds()
        self._left: ProbeRun | None = None
        """The run whose probes are still out."""
        self.job = Job(PROBED, every, self._measure)

    def _measure(self) -> None:
        try:
            run = self._probed()
        except Interrupted:
            return
        except Exception as exc:  # a bug of ours must not end the work of others
            _log.warning(
                "the delays could not be probed; it is tried again at the next time",
                extra={"action": "probe_failed", "error": str(exc)},
                exc_info=not isinstance(exc, MigratorError),
            )
            detail = {"outcome": "failed", "error": str(exc), "text": str(exc)}
            self.job.report("failed", str(exc), detail, is_fine=False)
            self._audit_log.note(PROBED, detail)
        else:
            self._tell(run)

    def _probed(self) -> ProbeRun:
        delays = self._delays
        if self._left is not None and not probe.are_back(delays.connection, self._left):
            return self._left
        run = probe.send_probes(
            delays.connection,
            delays.version,
            self._levels,
            timeout_s=probe_delay_s(self._levels[-1]) + self._warn_after_s + _PROBE_PATIENCE_S,
            find_bindings=delays.find_bindings,
            guard=self.job.check,
        )
        self._left = run if run.left_queue else None
        return run

    def _tell(self, run: ProbeRun) -> None:
        late = list(run.late_levels(after_s=self._warn_after_s))
        facts: dict[str, object] = {
            "delays": str(run.version),
            "probes": [ArrivedProbe.model_validate(each).model_dump() for each in run.probes],
        }
        if late:
            _log.warning(
                "probes through the delay levels are late, early or lost",
                extra={"action": "probe_late", "levels": late, **facts},
            )
        else:
            _log.info("probes came back in time", extra={"action": "probe_measured", **facts})
        outcome, text = "late" if late else "measured", probes_text(run, late)
        detail = {"outcome": outcome, "late_levels": late, **facts, "text": text}
        self.job.report(outcome, text, detail, is_fine=not late)
        self._audit_log.note(PROBED, detail)
        found = [probe.late_s for probe in run.probes if probe.level <= _PROBED_FOR_PACE]
        if found:
            came = [late_s for late_s in found if late_s is not None]
            self._pacer.probed(max(came) if len(came) == len(found) else None)


class KeptCapacity:
    """What the ledger has of the speed of these delays."""

    def __init__(self, queries: LedgerQueries, delays: DelaysHere) -> None:
        self._queries = queries
        self._delays = delays

    def read(self) -> MeasuredCapacity | None:
        """Return what was measured last; None: never on this broker as it is now.

        Raises:
            LedgerError: The ledger cannot be read.
            TargetError: The broker does not say who it is; only asked where there is a figure.
        """
        event = self._queries.latest_event(CAPACITY_MEASURED)
        found = None if event is None else read_capacity(event.detail)
        here = self._delays
        if found is None or found.broker != find_broker(here.connection, here.version):
            return None
        return found


class CapacityTask:
    """Knows what an exchange costs the levels of this broker; measures it where nobody did yet.

    * nobody waits for it: until it knows, and when it cannot, the usual cost counts;
    * it measures once in the life of a process, unless the ledger has a figure for this broker in
      its version; what somebody else measures meanwhile is found at the next look;
    * told to end in the middle, it goes at once; its queue removes itself (``delays.capacity``).
    """

    def __init__(
        self,
        delays: DelaysHere,
        kept: KeptCapacity,
        audit_log: AuditLog,
        cost: ExchangeCost,
        *,
        measures: bool,
    ) -> None:
        self._delays = delays
        self._kept = kept
        self._audit_log = audit_log
        self._cost = cost
        self._measures = measures
        self._told: object = None
        """What the log had last: a cost in seconds, or why it is not known."""
        self.job = Job("capacity", _LOOK_FOR_CAPACITY_EVERY, self._look, may_lag=True)

    def _look(self) -> None:
        try:
            found = self._kept.read()
            if found is None and self._measures:
                self._measures = False
                found = self._measured()
        except Interrupted:
            return
        except Exception as exc:  # a bug of ours must not end the work of others
            self._unknown(str(exc), is_bug=not isinstance(exc, MigratorError))
        else:
            if found is None:
                self._unknown(
                    "it was never measured; `migrator delays probe --capacity` measures it"
                )
            else:
                self._use(found)

    def _measured(self) -> MeasuredCapacity:
        found = measure_capacity(
            self._delays.connection,
            self._delays.version,
            find_bindings=self._delays.find_bindings,
            guard=self.job.check,
        )
        self._audit_log.note(CAPACITY_MEASURED, capacity_document(found))
        return found

    def _use(self, found: MeasuredCapacity) -> None:
        self._cost.seconds = found.exchange_cost_s
        if self._told == found.exchange_cost_s:
            return
        self._told = found.exchange_cost_s
        document = capacity_document(found)
        _log.info(
            "the measured speed of the levels is used",
            extra={"action": "capacity_known", **document},
        )
        text = f"each exchange costs a level {found.exchange_cost_s * 1000:.3f} ms"
        self.job.report("known", text, document, is_fine=True)

    def _unknown(self, reason: str, *, is_bug: bool = False) -> None:
        if self._told == reason or isinstance(self._told, float):
            return  # what was measured before still counts
        self._told = reason
        text = (
            f"each exchange is assumed to cost a level {self._cost.seconds * 1000:.3f} ms: {reason}"
        )
        _log.info(
            "how fast the levels let messages go is not known; the usual speed is assumed",
            extra={
                "action": "capacity_unknown",
                "exchange_cost_s": self._cost.seconds,
                "reason": reason,
            },
            exc_info=is_bug,
        )
        self.job.report("unknown", text, {"reason": reason}, is_fine=not is_bug)


class PurgeTask:
    """Does what ``migrator db purge`` does, and refuses what that refuses.

    It deletes in short transactions, so that lanes wait for moments at most, and so many rows at a
    time. Several processes may do it at once: each row is deleted by one of them.
    """

    def __init__(
        self,
        facts: LedgerFacts,
        settled: SettledRows,
        clock: Clock,
        audit_log: AuditLog,
        *,
        after: timedelta,
        every: timedelta,
    ) -> None:
        self._facts = facts
        self._settled = settled
        self._clock = clock
        self._audit_log = audit_log
        self._after = after
        self._rest = threading.Event()
        self.job = Job(PURGE, every, self._purge, grace=_PURGE_GRACE)

    def _purge(self) -> None:
        try:
            self._facts.verify()
            before = self._clock.now() - self._after
            rows = self._settled.purge(before=before, at_most=_MOST_PURGED, goes_on=self._goes_on)
        except MigratorError as exc:
            _log.warning(
                "settled rows could not be purged; it is tried again at its next time",
                extra={"action": "ledger_purge_failed", "error": str(exc)},
            )
            self.job.report("failed", str(exc), {"error": str(exc)}, is_fine=False)
            return
        more = rows >= _MOST_PURGED
        detail = {"before": before.isoformat(), "run": None, "rows": rows, "is_all": not more}
        text = f"{counted(rows, 'row')} settled and due before {before:%Y-%m-%d %H:%M} UTC deleted"
        self.job.report("done", f"{text}; there are more" if more else text, detail, is_fine=True)
        _log.info("settled rows were purged", extra={"action": PURGED, **detail})
        if rows:
            self._audit_log.note(PURGED, detail)

    def _goes_on(self) -> bool:
        """Rest, and return whether nobody asked to stop."""
        try:
            self.job.check()
        except Interrupted:
            return False
        self._rest.wait(_REST_S)
        return True


# ── the checks of the broker, made again ──────────────────────────────────────────────────────────

NAME: Final = "recheck"
AGAIN: Final = timedelta(seconds=30)
"""While it refuses, so that what was put right is seen soon."""
_SHOWN: Final = 3
_UNSEEN: Final = Level.NOT_CHECKED
_SAID: Final = {
    "refused": "would refuse a start",
    "unreachable": "cannot be reached",
    "not_checked": "not checked",
}

Bind = Callable[[Collection[QueueName]], Collection[QueueName]]
"""Leads the delays to destinations again; returns those that cannot be reached all the same."""


@dataclass(kw_only=True, eq=False)
class Recheck:
    """Makes checks when asked to, and pauses hand-over while they refuse."""

    throttle: Throttle
    """Is told of refusals."""
    audit_log: AuditLog
    """Is told when what is found is something else than before."""
    every: timedelta
    """Between two looks; it looks more often while anything is refused."""
    checks: Rechecks
    """What is looked at."""
    bind: Bind
    """Mends bindings."""
    may_pause: bool
    """False: nothing is handed over here, so there is nothing to pause."""

    def __post_init__(self) -> None:
        self._refusals: Mapping[str, Refusal] = {}
        self._ways: Sequence[Finding] = ()
        self._reported: object = None
        self._turn = threading.Lock()
        self.job = Job(NAME, self.every, self.look)
        self.jobs = [self.job]
        if self.every > AGAIN:
            self.jobs.append(Job(f"{NAME}-refused", AGAIN, self.look_again, may_lag=True))

    def look(self) -> None:
        """Look at everything."""
        with self._turn:
            self._look(lambda: self._bound_again(_made(self.checks.bindings)))

    def look_again(self) -> None:
        """Look at what refuses, if anything does; not at ways, which reads the ledger."""
        if self._refusals:
            with self._turn:
                self._look(lambda: self._ways)

    def _look(self, ways: Callable[[], Sequence[Finding]]) -> None:
        began_s = time.monotonic()
        findings = _made(self.checks.refusing)
        self._refusals = standing(self._refusals, findings)
        if self.may_pause:
            self._pause_or_resume()
        self._ways = ways()
        self._report([*findings, *self._ways], took_s=time.monotonic() - began_s)

    def _pause_or_resume(self) -> None:
        if not self._refusals:
            self.throttle.resume(Signal.CHECK)
            return
        remedies = dict.fromkeys(each.remedy for each in self._refusals.values() if each.remedy)
        observed = "; ".join(each.text for each in self._refusals.values())
        self.throttle.pause(Signal.CHECK, None, observed, "; ".join(remedies))

    def _bound_again(self, ways: Sequence[Finding]) -> Sequence[Finding]:
        """Return *ways* after an attempt to lead the delays to closed destinations again."""
        closed = [QueueName(each.subject) for each in ways if each.level is Level.REFUSED]
        if not closed:
            return ways
        try:
            left = self.bind(closed)
        except MigratorError:  # the finding stays, and is tried again next time
            return ways
        bound = sorted(set(closed) - set(left))
        if bound:
            _log.warning(
                "destinations of waiting timeouts had lost their binding to the delays; they are "
                "bound again",
                extra={"action": "destinations_bound_again", "destinations": bound},
            )
        return [
            replace(
                each, level=Level.OK, text=f"had lost its binding, and is bound again; {each.text}"
            )
            if each.level is Level.REFUSED and each.subject in bound
            else each
            for each in ways
        ]

    def _report(self, findings: Sequence[Finding], *, took_s: float) -> None:
        closed = [
            each
            for each in findings
            if each.level is Level.REFUSED and each.check not in self._refusals
        ]
        found = {
            "refused": [each.text for each in self._refusals.values()],
            "unreachable": [f"{each.subject}: {each.text}" for each in closed],
            "not_checked": [f"{f.check}: {f.text}" for f in findings if f.level is _UNSEEN],
        }
        is_refused = found["refused"] or found["unreachable"]
        outcome = "refused" if is_refused else "not_checked" if found["not_checked"] else "fine"
        said = [
            f"{_SAID[what]}: {listed(texts, _SHOWN, between='; ')}"
            for what, texts in found.items()
            if texts
        ]
        text = "; ".join(said) or "nothing would refuse a start"
        detail: dict[str, object] = {"outcome": outcome, **found}
        took = {"took_s": round(took_s, 2)}
        self.job.report(outcome, text, detail | took, is_fine=outcome == "fine")
        # how many wait for a destination, and until when, changes all the time
        if (new := {**detail, "unreachable": sorted(f.subject for f in closed)}) == self._reported:
            return
        self._reported = new
        _log.log(
            logging.WARNING if outcome == "refused" else logging.INFO,
            "repeating the checks of the broker gave another result than before",
            extra={"action": "recheck_changed", **detail},
        )
        self.audit_log.note(NAME, {**detail, "text": text})


def _made(check: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    try:
        return check()
    except MigratorError as exc:
        return [Finding(check=NAME, level=_UNSEEN, subject=NAME, text=str(exc))]
