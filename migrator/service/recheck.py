"""Preflight's checks of the broker, made again while the daemon runs.

Somebody may set a policy, make a level anew or deploy an endpoint again at any time. Rules:

* what would refuse a start pauses hand-over until it is gone; nobody has to resume;
* what could not be looked at is reported, and neither pauses nor resumes anything;
* it has a thread of its own, and lanes never wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from migrator.errors import MigratorError
from migrator.ledger.report import Signal
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Finding, Level, Refusal, standing
from migrator.preflight.registry import Rechecks
from migrator.service.audit_log import AuditLog
from migrator.service.schedule import Job
from migrator.service.throttle import Throttle

_log = logging.getLogger(__name__)

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
        """Have looked at nothing."""
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
            self._look(lambda: self._bound_again(_made(self.checks.ways)))

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
                "destinations of waiting timeouts were not bound to the delays, and are again",
                extra={"action": "destinations_bound_again", "destinations": bound},
            )
        return [
            replace(each, level=Level.OK, text=f"was not bound, and is again; {each.text}")
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
        said = [f"{_SAID[what]}: {_listed(texts)}" for what, texts in found.items() if texts]
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
            "checks of the broker, made again, find something else than before",
            extra={"action": "recheck_changed", **detail},
        )
        self.audit_log.note(NAME, {**detail, "text": text})


def _made(check: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    try:
        return check()
    except MigratorError as exc:
        return [Finding(check=NAME, level=_UNSEEN, subject=NAME, text=str(exc))]


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
