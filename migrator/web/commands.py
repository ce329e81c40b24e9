"""Commands as JSON: what ``POST /control`` takes, and what the command line sends.

Pure. ``parse(build(command)) == command``; what is not understood is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.web.control_values import (
    Adjust,
    Command,
    Drain,
    Knob,
    Pause,
    Resume,
    Retry,
    StopNow,
    command_document,
)

NO_REASON: Final = "no reason was given"
_LONGEST_CHARS: Final = 500
KEYS: Final[Mapping[str, frozenset[str]]] = {
    "pause": frozenset({"endpoint", "reason"}),
    "resume": frozenset({"endpoint"}),
    "set": frozenset({"knob", "value"}),
    "retry": frozenset({"endpoint", "reason", "id"}),
    "drain": frozenset(),
    "stop": frozenset(),
}
"""What may be given with each command, beside ``who``."""
_ANYWHERE: Final = frozenset({"command", "who"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A command, and who says to have given it."""

    command: Command
    who: str | None = None
    """As they call themselves; the daemon adds what it knows itself."""


def parse_order(document: object) -> Order:
    """Return the order that *document* is.

    Raises:
        ValueError: It is none; says what is wrong.
    """
    if not isinstance(document, dict):
        raise ValueError("must be a JSON object with a command")  # noqa: TRY004 - one kind of error for all that can be wrong
    given = cast("dict[str, object]", document)
    verb = given.get("command")
    if not isinstance(verb, str) or verb not in KEYS:
        raise ValueError(f"command must be one of {', '.join(KEYS)}")
    unknown = sorted(set(given) - KEYS[verb] - _ANYWHERE)
    if unknown:
        raise ValueError(f"{verb} has no {', '.join(unknown)}")
    return Order(command=_command(verb, given), who=_text(given, "who"))


def build_order(order: Order) -> dict[str, str]:
    """Return *order* as ``parse_order`` takes it."""
    found = command_document(order.command)
    if order.who is not None:
        found["who"] = order.who
    return {key: value for key, value in found.items() if value is not None}


def _command(verb: str, given: Mapping[str, object]) -> Command:
    if verb == "pause":
        return Pause(endpoint=_endpoint(given), reason=_text(given, "reason") or NO_REASON)
    if verb == "resume":
        return Resume(endpoint=_endpoint(given))
    if verb == "set":
        return Adjust(knob=_knob(given), value=_needed(given, "value"))
    if verb == "retry":
        return Retry(endpoint=_endpoint(given), reason=_reason(given), timeout_id=_id(given))
    return Drain() if verb == "drain" else StopNow()


def _endpoint(given: Mapping[str, object]) -> EndpointName | None:
    name = _text(given, "endpoint")
    return None if name is None else EndpointName(name)


def _reason(given: Mapping[str, object]) -> str | None:
    code = _text(given, "reason")
    if code is not None and code not in set(Reason):
        raise ValueError(f"reason must be one of {', '.join(Reason)}")
    return code


def _id(given: Mapping[str, object]) -> TimeoutId | None:
    found = _text(given, "id")
    return None if found is None else TimeoutId(found)


def _knob(given: Mapping[str, object]) -> Knob:
    try:
        return Knob(_needed(given, "knob"))
    except ValueError as exc:
        raise ValueError(f"knob must be one of {', '.join(Knob)}") from exc


def _needed(given: Mapping[str, object], key: str) -> str:
    found = _text(given, key)
    if found is None:
        raise ValueError(f"{key} must be given")
    return found


def _text(given: Mapping[str, object], key: str) -> str | None:
    """Return a text as one line that may be logged and shown as it is."""
    found = given.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"{key} must be a text that is not empty")
    if len(found) > _LONGEST_CHARS or not found.isprintable():
        raise ValueError(f"{key} must be one line of at most {_LONGEST_CHARS} characters")
    return found.strip()
