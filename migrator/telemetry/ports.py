"""Where it is told which messages the broker took, for those who follow a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.nservicebus.timeouts import BatchId, EndpointName, NativeMessage
from migrator.nservicebus.tracing import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Messages that the broker has confirmed: a whole batch, or some that were sent together."""

    work: str
    """``hand over``, ``dispatch`` or ``forward``."""
    endpoint: EndpointName
    batch: BatchId | None
    """None: they never were in a batch."""
    mode: str
    """``staged``, ``direct``, ``dispatch`` or ``forward``."""
    rows: int
    """How many messages the broker took."""
    seconds: float
    """How long that took, up to now."""
    traced: Sequence[Traced]
    """Those of them that ``Tracer.pick`` picked."""
    is_whole: bool
    """It is all of a batch; what a dispatcher sends together is chance."""


class Tracer(Protocol):
    """Told of what was done, from any thread.

    Neither method waits for anybody or raises anything: a trace is never worth a message.
    """

    def pick(self, messages: Iterable[NativeMessage]) -> Sequence[Traced]:
        """Return those of *messages* that are to have a span of their own, without their bodies."""
        ...

    def tell(self, passage: Passage) -> None:
        """Note that the broker has these messages."""
        ...


class NoTracer:
    """Nobody follows any trace; costs nothing."""

    def pick(self, messages: Iterable[NativeMessage]) -> Sequence[Traced]:
        """Return nothing, without a look."""
        return ()

    def tell(self, passage: Passage) -> None:
        """Do nothing."""


_: type[Tracer] = NoTracer
