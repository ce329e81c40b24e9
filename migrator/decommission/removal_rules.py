"""What speaks against deleting a generation of the native delays, as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from migrator.delays.routing import DelaysVersion, Infrastructure, delivery_exchange, infrastructure
from migrator.rabbitmq.entities import Binding, Kind

_NAMED: Final = 5
"""So many of a kind are named in a sentence; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysFound:
    """What is there of a generation, and what still uses it."""

    version: DelaysVersion
    exchanges: Sequence[str]
    """Those that exist, as they would be declared."""
    queues: Sequence[str]
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Messages by level queue: ready, unacknowledged and held; empty queues are left out."""
    consumed: Sequence[str] = ()
    """Level queues that somebody consumes."""
    untold: Sequence[str] = ()
    """Level queues so new that the broker has no counts of them yet."""
    feeders: Sequence[str] = ()
    """Exchanges of ours that lead into the levels."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """Messages by staging queue of ours; they would go into the levels."""
    bound: Sequence[Binding] = ()
    """What others bound to the delays, endpoints above all."""

    @property
    def bound_at_levels(self) -> Sequence[Binding]:
        """Those that nothing of NServiceBus makes, and nothing but their owner could make again."""
        delivery = delivery_exchange(self.version)
        return [binding for binding in self.bound if binding.source != delivery]

    @property
    def is_absent(self) -> bool:
        """Whether nothing of it exists."""
        return not (self.exchanges or self.queues)

    @property
    def is_partly_gone(self) -> bool:
        """Whether some of it exists and some does not, as after a deletion that was killed."""
        whole = infrastructure(self.version)
        count = len(self.exchanges) + len(self.queues)
        return 0 < count < len(whole.exchanges) + len(whole.queues)

    def obstacles(self, *, even_if_bound: bool) -> Iterator[str]:
        """Yield why it must not be deleted; one sentence each, with what to do."""
        for queue, count in self.waiting.items():
            yield f"{queue} holds {count} messages; wait until they are due, or move them"
        if self.consumed:
            yield f"somebody consumes {_listed(self.consumed)}; end that first"
        if self.untold:
            yield f"the broker has no counts of {_listed(self.untold)} yet; ask again in 10 seconds"
        if self.feeders:
            yield (
                f"exchanges of migrator lead into the levels: {_listed(self.feeders)}; "
                "`migrator decommission` takes them away"
            )
        for queue, count in self.staged.items():
            yield f"{queue} holds {count} messages on their way; `migrator run --once` moves them"
        at_levels = self.bound_at_levels
        if at_levels:
            yield f"bound to levels by somebody else: {described(at_levels)}; unbind that first"
        if not even_if_bound and (rest := [each for each in self.bound if each not in at_levels]):
            names = sorted({binding.target.name for binding in rest})
            yield f"still bound to the delays: {_listed(names)}; --even-if-bound ignores that"


def others_bindings(delays: Infrastructure, found: Iterable[Binding]) -> list[Binding]:
    """Return those of *found* that are no part of *delays*, which have no arguments."""
    own = {_identity(binding) for binding in delays.bindings}
    return [binding for binding in found if binding.arguments or _identity(binding) not in own]


def described(bindings: Iterable[Binding]) -> str:
    """Return from where to where *bindings* lead, without their keys."""
    return _listed(sorted({f"{each.source} → {each.target.name}" for each in bindings}))


def _identity(binding: Binding) -> tuple[str, str, str, bool]:
    return binding.source, binding.target.name, binding.key, binding.target.kind is Kind.QUEUE


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
