"""Reading the settings anew while the daemon runs: what can change does, the rest is named.

Rules of this file: settings that are wrong change nothing; what an operator set by hand gives way
to the settings, because that is what was asked for. Values are never told, they may be secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from migrator.config import HandOver, Settings
from migrator.errors import MigratorError
from migrator.service.crew import Crew
from migrator.service.knobs import Knobs
from migrator.service.trail import Trail
from migrator.web.control import Knob

_log = logging.getLogger(__name__)

EVENT: Final = "reload"
_KNOBS: Final = frozenset(f"handover.{knob}" for knob in Knob)
_AT_ONCE: Final = ("throttle.", "log.")


class Reload:
    """Called when the service is to read its settings anew; by the main thread."""

    def __init__(
        self,
        given: Settings,
        *,
        load: Callable[[], Settings],
        knobs: Knobs,
        crew: Crew,
        replace_throttles: Callable[[Settings], None],
        trail: Trail,
    ) -> None:
        """Compare with *given*; *load* reads them, and lets the log's settings count."""
        self._now = given
        self._load = load
        self._knobs = knobs
        self._crew = crew
        self._replace_throttles = replace_throttles
        self._trail = trail

    def __call__(self) -> None:
        """Read the settings, and do what they say as far as that goes."""
        try:
            found = self._load()
        except MigratorError as exc:
            _log.error(
                "the settings are wrong; nothing was changed",
                extra={"action": "reload_refused", "error": str(exc)},
            )
            self._trail.note(EVENT, {"is_done": False, "error": str(exc)})
            return
        changed = set(changed_keys(self._now, found))
        self._knobs.reset(self._knobs_of(found))
        self._crew.set_lanes(self._knobs.now.lanes)
        if any(key.startswith("throttle.") for key in changed):
            self._replace_throttles(found)
        later = sorted(key for key in changed if key not in _KNOBS and not key.startswith(_AT_ONCE))
        self._now = _partly(self._now, found)
        self._crew.wake()
        facts = {"changed": sorted(changed - set(later)), "needs_restart": later}
        level = logging.WARNING if later else logging.INFO
        _log.log(level, "the settings were read anew", extra={"action": "reloaded", **facts})
        self._trail.note(EVENT, {"is_done": True, **facts})

    def _knobs_of(self, found: Settings) -> HandOver:
        """Return hand-over as it is, with the knobs of *found*."""
        wanted = {str(knob): getattr(found.handover, knob) for knob in Knob}
        return self._now.handover.model_copy(update=wanted)


def changed_keys(before: Settings, after: Settings) -> Iterator[str]:
    """Yield the dotted key of everything that differs."""
    old, new = (dict(_flat(each.model_dump(by_alias=True))) for each in (before, after))
    for key in sorted(set(old) | set(new)):
        if old.get(key) != new.get(key):
            yield key


def _flat(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _partly(before: Settings, after: Settings) -> Settings:
    """Return what is in force now: of *after* what could change, the rest of *before*."""
    wanted = {str(knob): getattr(after.handover, knob) for knob in Knob}
    handover = before.handover.model_copy(update=wanted)
    update = {"handover": handover, "throttle": after.throttle, "log": after.log}
    return before.model_copy(update=update)
