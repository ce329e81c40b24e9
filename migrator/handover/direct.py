"""Direct hand-over: publish a batch straight into the levels and record the answer for each row.

Used for rows that were due when they were claimed, and for every row in ``direct`` mode. A crash
publishes the batch again, with fresh delays and the same message ids; a living process only
repeats rows without an answer. A message without a delay passes no level, so only its destination
can refuse it or not answer: that destination is parked, and the batch goes on. Of several messages
for a destination the first goes alone, so that no more of them wait for an answer. A message
without an answer is not sent again as long as an answer may come. A row that a level refuses stays
in the batch. Source: design section 5.1.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from migrator.delays.routing import Unreachable, no_answer, refused, unroutable
from migrator.errors import TargetUnavailable
from migrator.handover.holding import Holding, LateDestination, UndeliverableRow
from migrator.handover.ports import Link
from migrator.handover.prepare import Prepared, with_delays
from migrator.ledger.states import BatchState, Event
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import EncodedTimeout, QueueName
from migrator.rabbitmq.late import Sent
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.publisher import LISTEN_S, SILENCE_S, SLOW_S
from migrator.text import counted

_log = logging.getLogger(__name__)

_TRIES: Final = 3
"""A destination that refuses a row so often is parked."""
_PAUSES_S: Final = {1: 0.05, 2: 0.15}
"""After a destination's first and second refusal."""
_FIRST_PAUSE_S: Final = 0.2
"""After a level refused rows; doubles while it accepts none."""
_LONGEST_PAUSE_S: Final = 5.0
_NEW_LINK_EVERY: Final = 6
"""Refusals in a row until a new link is tried: after some 11 s, then every 30 s."""
_RECENT_S: Final = 1.0
"""For so long after an answer, a destination is sent several messages at once."""
_REMEMBERED: Final = 8
"""Batches with answers from before a lost link."""


@dataclass(kw_only=True, eq=False)
class DirectHandOver:
    """Hands over one batch at a time; remembers answers across a lost connection."""

    batches: Batches
    holding: Holding
    clock: Clock
    fault: FaultPoint
    _answered: dict[Attempt, tuple[PublishResult, _Refusals]] = field(default_factory=dict)
    _last_answer_s: dict[QueueName, float] = field(default_factory=dict)

    def answered(self, batch: Batch) -> Collection[int]:
        answers, _ = self._answered.get(batch.current_attempt, (PublishResult(), None))
        return answers.answered

    def hand_over(
        self, prepared: Prepared, link: Link, lease: Lease, *, report: Callable[[str], None]
    ) -> tuple[Batch, frozenset[int]]:
        """Return the batch once each row has an answer, and the rows that were not sent.

        Raises:
            TargetUnavailable: The outcome of rows without an answer is unknown, or a level refuses
                all rows and needs a new link. A later call in this process publishes only rows
                without an answer.
            LeaseLost, Interrupted: Stop; the lane's next owner publishes the batch again.
        """
        wanted = prepared.rows
        prepared = replace(prepared, batch=self._begin_attempt(prepared.batch, lease))
        answers, refusals = self._answered[prepared.batch.current_attempt]
        report(f"publishing batch {prepared.batch.id}")
        prepared = self._without_late_destinations(prepared, answers, lease)
        while rest := _unanswered(prepared, answers):
            now = self.clock.now()
            at_once = {each.row_index for each in rest if each.due_at <= now}
            if at_once:
                prepared = self._publish_due(prepared, at_once, link, answers, lease)
            later = [m for m in _unanswered(prepared, answers) if m.row_index not in at_once]
            self._publish(prepared.batch, later, link, answers)
            remaining = _unanswered(prepared, answers)
            refused_too_often = refusals.count_refusals(
                each for each in remaining if each.row_index in at_once
            )
            if refused_too_often:
                names = {
                    each.destination for each in remaining if each.row_index in refused_too_often
                }
                prepared = self._park(prepared, answers, lease, {n: refused(n) for n in names})
                remaining = _unanswered(prepared, answers)
            if remaining:
                link.idle(refusals.pause_s(prepared.batch, remaining, at_once, report))
        self.fault("direct.confirmed")
        batch = self._complete(prepared, answers, lease)
        return batch, wanted - answers.confirmed

    def _publish_due(
        self,
        prepared: Prepared,
        rows: Collection[int],
        link: Link,
        answers: PublishResult,
        lease: Lease,
    ) -> Prepared:
        slow: set[int] = set()
        skipped: set[QueueName] = set()
        for choose in (self._first_of_each, list[EncodedTimeout]):
            rest = [m for m in _unanswered(prepared, answers) if m.row_index in rows]
            due = choose([m for m in rest if m.destination not in skipped])
            slow.update(self._publish(prepared.batch, due, link, answers, silence_s=SLOW_S))
            not_taken = slow | answers.refused
            skipped |= {m.destination for m in due if m.row_index in not_taken}
            answering = {m.destination for m in due if m.row_index in answers.confirmed}
            self._last_answer_s |= dict.fromkeys(answering, self.clock.monotonic_s())
        names = self._note_late(prepared, self._await_answers(slow, link, answers), answers)
        return self._park(prepared, answers, lease, {name: no_answer(name) for name in names})

    def _await_answers(
        self, slow: Collection[int], link: Link, answers: PublishResult
    ) -> Collection[int]:
        remaining = {*slow} - answers.answered - answers.refused
        ends_s = self.clock.monotonic_s() + SILENCE_S - SLOW_S
        while remaining and (link.blocked_reason or self.clock.monotonic_s() < ends_s):
            link.idle(LISTEN_S)
            remaining -= answers.answered | answers.refused
        return remaining

    def _first_of_each(self, messages: Sequence[EncodedTimeout]) -> list[EncodedTimeout]:
        now_s = self.clock.monotonic_s()
        answering = {
            name for name, answer_s in self._last_answer_s.items() if now_s - answer_s < _RECENT_S
        }
        first = {m.destination: m for m in reversed(messages) if m.destination not in answering}
        return [*reversed(first.values())]

    def _publish(
        self,
        batch: Batch,
        messages: Sequence[EncodedTimeout],
        link: Link,
        answers: PublishResult,
        *,
        silence_s: float = math.inf,
    ) -> Collection[int]:
        """Publish due messages with *silence_s*; all others enter a level, even if they get due."""
        if not messages:
            return ()
        chunks = with_delays(
            messages,
            clock=self.clock,
            least_delay_s=int(silence_s == math.inf),
            halfway=lambda: self.fault("direct.publishing"),
        )
        return link.publish(batch.current_attempt, chunks, answers, silence_s=silence_s)

    # ── destinations that answer nothing ────────────────────────────────────────────────────

    def _without_late_destinations(
        self, prepared: Prepared, answers: PublishResult, lease: Lease
    ) -> Prepared:
        """Return the batch without rows for destinations that have not answered yet."""
        late = self.holding.late
        if not late:
            return prepared
        sent = {m.row_index: late.sent(_row_key(prepared.batch, m)) for m in prepared.messages}
        answers.confirmed.update(row for row, known in sent.items() if known is Sent.SURELY)
        waiting = {each.queue for each in late.waiting()}
        return self._park(prepared, answers, lease, {n: no_answer(n) for n in waiting})

    def _note_late(
        self, prepared: Prepared, rows: Collection[int], answers: PublishResult
    ) -> Collection[QueueName]:
        by_destination: dict[QueueName, list[EncodedTimeout]] = {}
        if not rows:
            return ()
        for each in prepared.messages:
            if each.row_index in rows:
                by_destination.setdefault(each.destination, []).append(each)
        for name, messages in by_destination.items():
            self.holding.late.note(
                {_row_key(prepared.batch, each): each.row_index for each in messages},
                answers,
                LateDestination(prepared.batch.source, name),
            )
        return by_destination.keys()

    def _begin_attempt(self, batch: Batch, lease: Lease) -> Batch:
        if batch.state is BatchState.PUBLISHING and batch.current_attempt in self._answered:
            return batch
        batch = self.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
        while len(self._answered) >= _REMEMBERED:  # another owner may have completed the oldest
            del self._answered[next(iter(self._answered))]
        self._answered[batch.current_attempt] = (PublishResult(), _Refusals())
        self.fault("direct.begun")
        return batch

    def _park(
        self,
        prepared: Prepared,
        answers: PublishResult,
        lease: Lease,
        unreachable: Mapping[QueueName, Unreachable],
    ) -> Prepared:
        lost = [
            UndeliverableRow(message=each, reason=unreachable[each.destination])
            for each in _unanswered(prepared, answers)
            if each.destination in unreachable
        ]
        if not lost:
            return prepared
        batch = self.holding.park(prepared.batch, lost, lease)
        gone = {each.message.row_index for each in lost}
        messages = tuple(each for each in prepared.messages if each.row_index not in gone)
        return replace(prepared, batch=batch, messages=messages)

    def _complete(self, prepared: Prepared, answers: PublishResult, lease: Lease) -> Batch:
        batch = prepared.batch
        lost = [
            UndeliverableRow(message=each, reason=unroutable(each.destination))
            for each in prepared.messages
            if each.row_index in answers.returned
        ]
        if lost:
            batch = self.holding.park(batch, lost, lease)
            self.holding.forget([each.message.destination for each in lost])
        self.holding.reached(batch, _reached(prepared, answers))
        batch = self.batches.advance(batch, Event.ALL_SETTLED, lease)
        self._answered.pop(batch.current_attempt, None)
        if self.holding.late:
            self.holding.late.forget({_row_key(batch, each) for each in prepared.messages})
        self.fault("direct.handed_over")
        return batch


class _Refusals:
    """Counts how often the broker refused rows of one batch; decides the pauses between tries."""

    def __init__(self) -> None:
        self._by_destination = Counter[int]()
        self._refusals = 0
        self._refusals_in_a_row = 0
        self._last_remaining: int | None = None

    def count_refusals(self, refused_rows: Iterable[EncodedTimeout]) -> Collection[int]:
        rows = [each.row_index for each in refused_rows]
        self._by_destination.update(rows)
        return {row for row in rows if self._by_destination[row] >= _TRIES}

    def pause_s(
        self,
        batch: Batch,
        remaining: Sequence[EncodedTimeout],
        at_once: Collection[int],
        report: Callable[[str], None],
    ) -> float:
        """Return the pause before the next try; rows not in *at_once* were refused by a level."""
        tries = [self._by_destination[m.row_index] for m in remaining if m.row_index in at_once]
        pauses_s = [_PAUSES_S[min(tries)]] if tries else []
        if len(remaining) > len(tries):
            pauses_s.append(self._pause_of_level_s(batch, len(remaining) - len(tries), report))
        return min(pauses_s)

    def _pause_of_level_s(
        self, batch: Batch, remaining: int, report: Callable[[str], None]
    ) -> float:
        """Report that a level refused *remaining* rows; return the pause before the next try.

        Raises:
            TargetUnavailable: A quorum queue may keep refusing a channel although a policy gave it
                room (measured, 3.10): a new link is needed.
        """
        is_stuck = self._last_remaining is not None and remaining >= self._last_remaining
        self._refusals_in_a_row = self._refusals_in_a_row + 1 if is_stuck else 0
        self._last_remaining = remaining
        self._refusals += 1
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(self._refusals_in_a_row, 10), _LONGEST_PAUSE_S)
        rows = counted(remaining, "row")
        text = f"the broker refuses {rows} of batch {batch.id}; is a level queue full?"
        report(f"publishing: {text}")
        if self._refusals & (self._refusals - 1) == 0:  # 1st, 2nd, 4th, 8th …
            _log.warning(
                "the broker refuses rows; publishing them again. Is a level queue full?",
                extra={
                    "action": "rows_refused",
                    "batch": batch.id,
                    "rows": remaining,
                    "times": self._refusals,
                    "retry_in_s": pause_s,
                },
            )
        if self._refusals_in_a_row and self._refusals_in_a_row % _NEW_LINK_EVERY == 0:
            raise TargetUnavailable(text)
        return pause_s


def _row_key(batch: Batch, message: EncodedTimeout) -> tuple[str, str]:
    return batch.source, message.timeout_id


def _reached(prepared: Prepared, answers: PublishResult) -> Collection[QueueName]:
    return {
        message.destination
        for message in prepared.messages
        if message.row_index in answers.confirmed and message.due_at <= prepared.prepared_at
    }


def _unanswered(prepared: Prepared, answers: PublishResult) -> list[EncodedTimeout]:
    answered = answers.answered
    return [each for each in prepared.messages if each.row_index not in answered]
