"""The daemon as others see it, and how they talk to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from migrator import __version__
from migrator.errors import MigratorError
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import QuarantinedTimeout, QuarantineFilter
from migrator.service.control import Control, ServedEndpoint
from migrator.service.schedule import Job
from migrator.service.systemd import Supervision
from migrator.status.document import StatusDocument
from migrator.status.finished import FinishWatch
from migrator.status.poller import StatusPoller, StatusSnapshot
from migrator.status.reader import LedgerReader
from migrator.status.remaining import Phase, phase_of
from migrator.status.snapshot import EndpointView, Snapshot
from migrator.stores.ports import DUE_SPANS, LATER, Claims
from migrator.text import counted
from migrator.throttle.reasons import PauseReason, Signal
from migrator.web.control import Answer, Command, Liveness, QuarantinePage, Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """Implements ``web.control.StatusService`` over what is known; any thread may ask."""

    owner: str
    ledger_place: str
    queries: LedgerQueries
    reader: LedgerReader
    control: Control
    supervision: Supervision
    poller: StatusPoller
    polling: Sequence[Job]
    """Those of the poller."""
    finish: FinishWatch
    jobs: Sequence[Job]
    """Empty before the work begins."""
    title: str = ""
    system: Mapping[str, str] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    def snapshot(self) -> Snapshot:
        """Return the latest look at everything; holds and settings are those of this moment."""
        seen = self._ask()
        return Snapshot(
            taken_at=seen.progress.taken_at,
            age_s=max(time.monotonic() - seen.at_s, 0.0),
            version=__version__,
            owner=self.owner,
            progress=seen.progress,
            endpoints=[self._view(served, seen) for served in self.control.served.values()],
            holds=self.control.throttle.reasons(),
            settings=self.control.runtime.texts(),
            levels=seen.levels,
            due=_together(seen),
            events=seen.events,
            jobs=[job.view() for job in self.jobs],
            gaps=[*_gaps(seen), *_unclaimable(self.control.claims)],
            title=self.title,
            system=self.system,
            uptime_s=time.monotonic() - self.began_s,
            throughput=self.poller.throughput(),
        )

    def _ask(self) -> StatusSnapshot:
        was_wanted, seen = self.poller.is_wanted, self.poller.ask()
        if not was_wanted:
            for job in self.polling:
                job.run_soon()
        return seen

    def live(self) -> Liveness:
        """Return whether the loops go on."""
        silent_s = {worker.name: worker.silent_s for worker in self.control.workers}
        limit_s = self.supervision.silence_limit_s
        is_alive = all(each < limit_s for each in silent_s.values())
        return Liveness(silent_s=silent_s, is_alive=is_alive)

    def ready(self) -> Readiness:
        """Return whether the daemon works; a hold is no reason why not."""
        reasons = list(self._reasons())
        return Readiness(is_ready=not reasons, reasons=reasons)

    def ledger(self) -> StatusDocument | None:
        """Return what the ledger says now; None: it cannot be read."""
        try:
            seen = self._ask()
            return self.reader.document(
                self.queries.progress(),
                [self._view(served, seen) for served in self.control.served.values()],
                told_by="daemon",
                holds=self.control.throttle.reasons(),
                not_counted=seen.not_counted,
            )
        except MigratorError:
            return None

    def quarantine(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        """Return rows in quarantine whose key is above *after*."""
        try:
            rows = self.control.quarantine.page(which, after=after, limit=limit + 1)
        except MigratorError as exc:
            return QuarantinePage(error=str(exc))
        return QuarantinePage(rows=rows[:limit], has_more=len(rows) > limit)

    def quarantined(self, which: QuarantineFilter) -> Sequence[QuarantinedTimeout]:
        """Return rows in quarantine with their content; empty: none, or they cannot be read."""
        try:
            return self.control.quarantine.full(which)
        except MigratorError:
            return ()

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says."""
        return self.control.execute(command, who=who)

    def _view(self, served: ServedEndpoint, seen: StatusSnapshot) -> EndpointView:
        known = [seen.counts.get(served.name), self.finish.remaining(served.name)]
        found = max((e for e in known if e), key=attrgetter("counted_at"), default=None)
        holds = [
            each
            for each in self.control.throttle.reasons_for(served.name)
            if served.moves or each.signal is Signal.REFUSED
        ]
        return EndpointView(
            endpoint=served.name,
            mode=served.mode,
            phase=self._phase(served, seen, holds) if served.moves else None,
            remaining=found,
            rate_per_s=self.poller.rate_per_s(served.name),
            holds=holds,
        )

    def _phase(
        self, served: ServedEndpoint, seen: StatusSnapshot, holds: Sequence[PauseReason]
    ) -> Phase:
        progress = next((e for e in seen.progress.endpoints if e.endpoint == served.name), None)
        return phase_of(
            progress,
            is_finished=self.finish.is_finished(served.name, as_of=seen.progress.taken_at),
            holds=holds,
            has_parked=any(each.endpoint == served.name for each in seen.progress.held),
        )

    def _reasons(self) -> Iterator[str]:
        if not self.supervision.has_begun:
            yield "starting"
        if self.control.stop.draining.is_set():
            yield "ending"
        if (error := self.poller.store_error) is not None:
            yield f"the ledger cannot be read: {error}"
        for worker in self.control.workers:
            if worker.crash is not None or worker.failure is not None:
                yield f"{worker.name} has ended: {worker.failure or worker.crash}"
            elif worker.trouble is not None:
                yield f"{worker.name}: {worker.trouble}"
            elif worker.silent_s >= self.supervision.silence_limit_s:
                yield f"{worker.name} hangs"


def _gaps(seen: StatusSnapshot) -> Iterator[str]:
    """Yield what could not be read, and what is not exact."""
    for what, why in sorted(seen.gaps.items()):
        yield f"{what}: {why}"
    for name, why in sorted(seen.not_counted.items()):
        yield f"rows of {name}: {why}"
    for name, count in sorted(seen.counts.items()):
        if not count.is_exact:
            yield f"rows of {name}: too many to be counted; estimated"


def _unclaimable(claims: Claims) -> Iterator[str]:
    """Yield how many rows of each table cannot be claimed, with one of them and its error."""
    for source, rows in sorted(claims.unclaimable().items()):
        for row, why in [*rows.items()][:1]:
            rows_text = counted(len(rows), "row")
            yield f"{source}: {rows_text} cannot be claimed, tried again later; {row}: {why}"


def _together(seen: StatusSnapshot) -> Sequence[tuple[str, int]]:
    """Return the rows of all tables by how soon they are due, soonest first."""
    sums: Counter[str] = Counter()
    for count in seen.counts.values():
        sums.update(dict(count.due))
    return [(span, sums[span]) for span in (*(name for name, _ in DUE_SPANS), LATER) if sums[span]]
