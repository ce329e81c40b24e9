"""The daemon as others see it: what is known already, as ``web.control.StatusService`` has it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from migrator import __version__
from migrator.ledger.report import QuarantineFilter
from migrator.service.aside import Aside
from migrator.service.control import Control, Served
from migrator.service.gate import Gate
from migrator.service.jobs import Tally
from migrator.service.knobs import Knobs
from migrator.service.lookout import Lookout, Seen
from migrator.service.supervision import Supervision
from migrator.service.worker import Stop, WorkerThread
from migrator.web.control import Answer, Command
from migrator.web.status import EndpointView, Liveness, QuarantinePage, Readiness, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelParts:
    """What a panel looks at."""

    owner: str
    served: Sequence[Served]
    gate: Gate
    knobs: Knobs
    workers: Iterable[WorkerThread]
    stop: Stop
    supervision: Supervision
    lookout: Lookout
    control: Control
    aside: Aside
    tally: Tally


class DaemonPanel:
    """Answers at once, from any thread."""

    def __init__(self, parts: PanelParts) -> None:
        """Look at *parts*."""
        self._parts = parts

    def snapshot(self) -> Snapshot:
        """Return the latest look at everything; holds and knobs are those of this moment."""
        parts = self._parts
        seen = parts.lookout.ask()
        return Snapshot(
            taken_at=seen.progress.taken_at,
            age_s=max(time.monotonic() - seen.at_s, 0.0),
            version=__version__,
            owner=parts.owner,
            progress=seen.progress,
            endpoints=[self._view(served, seen) for served in parts.served],
            holds=parts.gate.holds(),
            knobs={str(knob): value for knob, value in parts.knobs.texts().items()},
            ladder=seen.ladder,
            due=_together(seen),
            events=seen.events,
            jobs=parts.tally.views(),
            gaps=[*_gaps(seen)],
        )

    def live(self) -> Liveness:
        """Return whether the loops go on."""
        silent_s = {worker.name: worker.silent_s for worker in self._parts.workers}
        limit_s = self._parts.supervision.silence_limit_s
        is_alive = all(each < limit_s for each in silent_s.values())
        return Liveness(silent_s=silent_s, is_alive=is_alive)

    def ready(self) -> Readiness:
        """Return whether the daemon works; a hold is no reason why not."""
        reasons = list(self._reasons())
        return Readiness(is_ready=not reasons, reasons=reasons)

    def quarantine(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        """Return rows in quarantine whose key is above *after*."""
        return self._parts.aside.page(which, after=after, limit=limit)

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says."""
        return self._parts.control.execute(command, who=who)

    def _view(self, served: Served, seen: Seen) -> EndpointView:
        parts, counted = self._parts, seen.counts.get(served.name)
        rate = parts.lookout.rate_per_s(served.name)
        rows = None if counted is None else counted.rows
        return EndpointView(
            name=served.name,
            mode=served.mode,
            in_store=rows,
            rate_per_s=rate,
            eta_s=rows / rate if rows is not None and rate else None,
            holds=parts.gate.holds_for(served.name) if served.moves else (),
        )

    def _reasons(self) -> Iterator[str]:
        parts = self._parts
        if not parts.supervision.has_begun:
            yield "starting"
        if parts.stop.draining.is_set():
            yield "ending"
        if (error := parts.lookout.store_error) is not None:
            yield f"the ledger cannot be read: {error}"
        for worker in parts.workers:
            if worker.crash is not None or worker.failure is not None:
                yield f"{worker.name} has ended: {worker.failure or worker.crash}"
            elif worker.trouble is not None:
                yield f"{worker.name}: {worker.trouble}"
            elif worker.silent_s >= parts.supervision.silence_limit_s:
                yield f"{worker.name} hangs"


def _gaps(seen: Seen) -> Iterator[str]:
    """Yield what could not be read, and what is not exact."""
    for what, why in sorted(seen.gaps.items()):
        yield f"{what}: {why}"
    for name, counted in sorted(seen.counts.items()):
        if not counted.is_all:
            yield f"rows of {name}: too many to be counted; estimated"


def _together(seen: Seen) -> Sequence[tuple[str, int]]:
    """Return the rows of all tables by how soon they are due."""
    sums: Mapping[str, int] = defaultdict(int)
    for counted in seen.counts.values():
        for span, rows in counted.due:
            sums[span] += rows  # type: ignore[index]  # it is a defaultdict
    return list(sums.items())
