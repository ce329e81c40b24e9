"""Preflight's checks of the broker, made again while the daemon runs.

Somebody may set a policy, make a level anew or deploy an endpoint again at any time. Rules:

* what would refuse a start pauses hand-over until it is gone; nobody has to resume;
* what could not be looked at is reported, and neither pauses nor resumes anything;
* it has a thread of its own, and lanes never wait for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from migrator.errors import MigratorError
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Finding, Level, Refusal, standing
from migrator.preflight.registry import Rechecks
from migrator.service.audit_log import AuditLog
from migrator.service.schedule import BackgroundTask, Job
from migrator.service.throttle import Throttle
from migrator.web.status import JobReport

_log = logging.getLogger(__name__)

NAME: Final = "recheck"
EVENT: Final = "recheck"
AGAIN: Final = timedelta(seconds=30)
"""While it refuses, so that what was put right is seen soon."""
_SHOWN: Final = 3

Check = Callable[[], Sequence[Finding]]
Bind = Callable[[Collection[QueueName]], Collection[QueueName]]
"""Leads the delays to destinations again; returns those that cannot be reached all the same."""


class Recheck:
    """Makes checks when asked to, and pauses hand-over while they refuse."""

    def __init__(
        self,
        throttle: Throttle,
        audit_log: AuditLog,
        *,
        checks: Rechecks,
        bind: Bind,
        may_pause: bool,
    ) -> None:
        """Prepare.

        Args:
            throttle: Is told of refusals.
            audit_log: Is told when what is found is something else than before.
            checks: What is looked at.
            bind: Mends ways.
            may_pause: False: nothing is handed over here, so there is nothing to pause.
        """
        self._throttle = throttle
        self._audit_log = audit_log
        self._checks = checks
        self._bind = bind
        self._may_pause = may_pause
        self._refusals: Mapping[str, Refusal] = {}
        self._wants_ways = True
        self._ways: Sequence[Finding] = ()
        self._reported: object = None
        self.last: JobReport | None = None
        """What came of the last time; None: not made yet."""
        self.task = BackgroundTask(NAME, self._look)

    def jobs(self, every: timedelta) -> Sequence[Job]:
        """Return what has it looked *every* so often, and more often while anything is refused."""
        usual = Job(name=NAME, every=every, do=self._ask, report=lambda: self.last, task=self.task)
        if every <= AGAIN:
            return [usual]
        return [usual, Job(name=f"{NAME}-refused", every=AGAIN, do=self._ask_again)]

    def _ask(self) -> bool:
        self._wants_ways = True
        return self.task.run_soon()

    def _ask_again(self) -> bool:
        if self._refusals:
            self.task.run_soon()
        return True  # one that is still under way is as good

    def _look(self) -> None:
        began_s = time.monotonic()
        findings = _made(self._checks.refusing)
        self._refusals = standing(self._refusals, findings)
        if self._may_pause:
            self._pause_or_resume()
        if self._wants_ways:  # not each half minute: it reads the ledger
            self._wants_ways = False
            self._ways = self._bound_again(_made(self._checks.ways))
        self._report([*findings, *self._ways], took_s=time.monotonic() - began_s)

    def _pause_or_resume(self) -> None:
        if not self._refusals:
            self._throttle.resume(Signal.CHECK)
            return
        remedies = dict.fromkeys(each.remedy for each in self._refusals.values() if each.remedy)
        reason = PauseReason(
            signal=Signal.CHECK,
            endpoint=None,
            observed="; ".join(each.text for each in self._refusals.values()),
            limit="; ".join(remedies),
            since=datetime.now(UTC),
        )
        self._throttle.pause(reason)

    def _bound_again(self, ways: Sequence[Finding]) -> Sequence[Finding]:
        """Return *ways* after an attempt to lead the delays to closed destinations again."""
        closed = [QueueName(each.subject) for each in ways if each.level is Level.REFUSED]
        if not closed:
            return ways
        try:
            left = self._bind(closed)
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
        refused = [each.text for each in self._refusals.values()]
        closed = [
            f"{each.subject}: {each.text}"
            for each in findings
            if each.level is Level.REFUSED and each.check not in self._refusals
        ]
        unseen = [f"{f.check}: {f.text}" for f in findings if f.level is Level.NOT_CHECKED]
        outcome = "refused" if refused or closed else "not_checked" if unseen else "fine"
        detail = {
            "outcome": outcome,
            "refused": refused,
            "unreachable": closed,
            "not_checked": unseen,
        }
        text = _text(refused, closed, unseen)
        self.last = JobReport(
            at=datetime.now(UTC),
            outcome=outcome,
            is_fine=outcome == "fine",
            text=text,
            detail={**detail, "took_s": round(took_s, 2)},
        )
        # how many wait for a destination, and until when, changes all the time
        names = sorted(each.subject for each in findings if each.level is Level.REFUSED)
        if (new := {**detail, "unreachable": names}) == self._reported:
            return
        self._reported = new
        level = logging.WARNING if outcome == "refused" else logging.INFO
        _log.log(
            level,
            "checks of the broker, made again, find something else than before",
            extra={"action": "recheck_changed", **detail},
        )
        self._audit_log.note(EVENT, {**detail, "text": text})


def _made(check: Check) -> Sequence[Finding]:
    try:
        return check()
    except MigratorError as exc:
        return [Finding(check=NAME, level=Level.NOT_CHECKED, subject=NAME, text=str(exc))]


def _text(refused: Sequence[str], closed: Sequence[str], unseen: Sequence[str]) -> str:
    parts = [
        f"{what}: {_listed(texts)}"
        for what, texts in (
            ("would refuse a start", refused),
            ("cannot be reached", closed),
            ("not checked", unseen),
        )
        if texts
    ]
    return "; ".join(parts) or "nothing would refuse a start"


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
