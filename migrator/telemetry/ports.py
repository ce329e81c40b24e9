"""What a stored message says of its trace, and where it is told that the broker has the message.

NServiceBus writes ``traceparent`` and ``tracestate`` as headers of the message since version 8, and
so does NServiceBus.Extensions.Diagnostics for versions 7 and older; a timeout keeps them as any
other header. ``Request-Id``, which that package wrote where .NET's older ids were in use, names no
W3C trace and is not read. Source of the form: https://www.w3.org/TR/trace-context/ section 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from migrator.nservicebus.timeouts import BatchId, EndpointName, NativeMessage, TimeoutId

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_PARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?",
    re.ASCII,
)
_NO_VERSION: Final = "ff"
_FIRST_VERSION: Final = "00"
_SAMPLED: Final = 0x01
_LONGEST_CHARS: Final = 512
"""Of either header; what is longer is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """The span that sent a message, as its headers name it."""

    trace_id: str
    """32 hexadecimal digits, not all of them 0."""
    span_id: str
    """16 hexadecimal digits, not all of them 0."""
    is_sampled: bool
    """The sender recorded its span, and wants what follows recorded."""
    state: str = ""
    """``tracestate`` as stored, not looked into; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What is kept, without its body, of a message whose sender recorded its trace."""

    context: TraceContext
    row_index: int
    timeout_id: TimeoutId
    message_id: str
    conversation_id: str | None
    destination: str
    body_bytes: int


def trace_context(parent: object, state: object = None) -> TraceContext | None:
    """Return what ``traceparent`` and ``tracestate`` say; None when the first is missing or wrong.

    A wrong one is ignored, as the standard has it: a trace is never worth a message.
    """
    if not isinstance(parent, str) or len(parent) > _LONGEST_CHARS:
        return None
    found = _PARENT.fullmatch(parent.strip())
    if found is None or found["version"] == _NO_VERSION:
        return None
    if found["version"] == _FIRST_VERSION and found["more"] is not None:
        return None
    if not int(found["trace"], 16) or not int(found["span"], 16):
        return None
    has_state = isinstance(state, str) and len(state) <= _LONGEST_CHARS
    return TraceContext(
        trace_id=found["trace"],
        span_id=found["span"],
        is_sampled=bool(int(found["flags"], 16) & _SAMPLED),
        state=str(state) if has_state else "",
    )


def traced(messages: Iterable[NativeMessage]) -> Iterator[Traced]:
    """Yield what is kept of those *messages* whose sender recorded its span."""
    for message in messages:
        if TRACEPARENT not in message.headers:
            continue
        context = trace_context(message.headers[TRACEPARENT], message.headers.get(TRACESTATE))
        if context is not None and context.is_sampled:
            conversation = message.headers.get("NServiceBus.ConversationId")
            yield Traced(
                context=context,
                row_index=message.row_index,
                timeout_id=message.timeout_id,
                message_id=message.message_id,
                conversation_id=None if conversation is None else str(conversation),
                destination=message.destination,
                body_bytes=len(message.body),
            )


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
