"""What an operator may tell a running daemon, and what it answers, as values.

The same commands come over the control socket, over HTTP and from the status page; each is written
into the ledger with who gave it, when, and what came of it. Source: docs/control.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.nservicebus.timeouts import EndpointName, TimeoutId


class Knob(StrEnum):
    """What can be set while the daemon runs; settings are what counts after a restart."""

    BATCH_SIZE = "batch_size"
    RATE_LIMIT = "rate_limit"
    LANES = "lanes"
    CUTOFF = "cutoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Claim nothing more, of one endpoint or of all; what is claimed is finished."""

    endpoint: EndpointName | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Lift a pause; without effect where there is none."""

    endpoint: EndpointName | None
    """None: every pause, of single endpoints as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust:
    """Change a knob for as long as the daemon runs."""

    knob: Knob
    value: str
    """As in the settings file: ``500``, ``1m`` …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Try rows in quarantine again, once what was wrong is right; what is not given is any."""

    endpoint: EndpointName | None
    reason: str | None
    """A ``conversion.Reason`` code."""
    timeout_id: TimeoutId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Finish what is claimed, then end: the same as the first SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNow:
    """End between two steps: the same as the second SIGTERM; recovery does the rest."""


Command = Pause | Resume | Adjust | Retry | Drain | StopNow


def command_document(command: Command) -> dict[str, str | None]:
    """Return *command* as it is sent, and as it is written into the ledger."""
    match command:
        case Pause(endpoint=endpoint, reason=reason):
            return {"command": "pause", "endpoint": endpoint, "reason": reason}
        case Resume(endpoint=endpoint):
            return {"command": "resume", "endpoint": endpoint}
        case Adjust(knob=knob, value=value):
            return {"command": "set", "knob": str(knob), "value": value}
        case Retry(endpoint=endpoint, reason=reason, timeout_id=timeout_id):
            return {"command": "retry", "endpoint": endpoint, "reason": reason, "id": timeout_id}
        case Drain():
            return {"command": "drain"}
        case StopNow():
            return {"command": "stop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a command."""

    is_done: bool
    """False: it was refused and nothing changed; *text* says why."""
    text: str
    """What is true now, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """Whether the loops go on; no store and no broker is asked."""

    silent_s: Mapping[str, float]
    """Worker → seconds since its loop last went on."""
    is_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether the daemon does what it is there for."""

    is_ready: bool
    reasons: Sequence[str]
    """Why not; empty when it is ready. A throttle is no reason: it shows in the status."""
