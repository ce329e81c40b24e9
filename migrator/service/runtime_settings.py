"""What can be set while the daemon runs, and reading the settings anew.

Rules of this file: what was set by hand counts until a restart or a reload; settings that are wrong
change nothing; of others, what can change does, and the rest is named. Values are never logged,
they may be secrets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from pydantic import ValidationError

from migrator.config import HandOver, Settings, ThrottleSettings
from migrator.config.work import HandOverPace
from migrator.errors import ConfigError, MigratorError
from migrator.handover.lane import LanePacing
from migrator.service.audit_log import AuditLog
from migrator.service.worker import WorkerPool
from migrator.stores.endpoints import Selection
from migrator.text import build_duration
from migrator.web.control import RuntimeSetting

_log = logging.getLogger(__name__)

RELOAD: Final = "reload"
_SETTABLE: Final = frozenset(f"handover.{setting}" for setting in RuntimeSetting)
_AT_ONCE: Final = ("throttle.", "log.")


class Polls(Protocol):
    """The signals that are polled."""

    def use(self, given: ThrottleSettings) -> None:
        """Poll what *given* wants, and nothing else."""
        ...

    def end(self) -> None:
        """Poll nothing any more."""
        ...


class RuntimeSettings:
    """The values in force; lanes read them before each batch, from any thread."""

    def __init__(self, given: HandOver) -> None:
        self._lock = threading.Lock()
        self._now = given

    @property
    def now(self) -> HandOver:
        """The section of the settings as it is in force."""
        return self._now

    def pace(self) -> LanePacing:
        """Return how much at a time, and how fast."""
        now = self._now
        # a second's worth at most, so that a slow rate does not make a stop slow
        rows = min(now.batch_size, now.rate_limit or now.batch_size)
        return LanePacing(batch_rows=rows, rate_limit_per_s=now.rate_limit)

    def keeps_to_levels(self) -> bool:
        """Return whether hand-over is as slow as the delay levels are."""
        return self._now.pace is HandOverPace.LEVELS

    def selection(self) -> Selection:
        """Return which rows are to be migrated."""
        now = self._now
        return Selection(cutoff=now.cutoff, horizon=now.horizon)

    def set(self, setting: RuntimeSetting, value: str) -> str:
        """Set *setting* to *value*, as in the settings file; return what was in force before.

        Raises:
            ConfigError: It cannot have that value; says what it may be. Nothing was changed.
        """
        with self._lock:
            before = self.texts()[setting]
            self._now = _changed(self._now, setting, value)
            return before

    def reset(self, given: HandOver) -> None:
        """Let the settings count again."""
        with self._lock:
            self._now = given

    def texts(self) -> Mapping[str, str]:
        """Return every setting with its value, as in the settings file."""
        values = {setting: getattr(self._now, setting) for setting in RuntimeSetting}
        values[RuntimeSetting.CUTOFF] = build_duration(self._now.cutoff)
        return {str(setting): str(value) for setting, value in values.items()}


def _changed(now: HandOver, setting: RuntimeSetting, value: str) -> HandOver:
    try:
        return HandOver.model_validate({**now.model_dump(), str(setting): value})
    except ValidationError as exc:
        raise ConfigError(f"{setting} cannot be {value!r}: {_said(exc)}") from exc


def _said(exc: ValidationError) -> str:
    said = "; ".join(each["msg"].removeprefix("Value error, ") for each in exc.errors())
    return said[:1].lower() + said[1:]


def read_anew(
    now: Settings,
    load: Callable[[], Settings],
    *,
    runtime: RuntimeSettings,
    workers: WorkerPool,
    polls: Polls,
    audit_log: AuditLog,
) -> Settings:
    """Do what the settings that *load* reads say as far as that goes; return those in force.

    *now* were in force before. By the main thread; *load* lets the log's settings count.
    """
    try:
        found = load()
        handover = _in_force(now.handover, found.handover)
    except MigratorError as exc:
        _log.error(
            "the settings are wrong; nothing was changed",
            extra={"action": "reload_refused", "error": str(exc)},
        )
        audit_log.note(RELOAD, {"is_done": False, "error": str(exc)})
        return now
    changed = set(changed_keys(now, found))
    runtime.reset(handover)
    workers.set_lanes(handover.lanes)
    if any(key.startswith("throttle.") for key in changed):
        polls.use(found.throttle)
    workers.wake()
    later = sorted(key for key in changed if key not in _SETTABLE and not key.startswith(_AT_ONCE))
    facts = {"changed": sorted(changed - set(later)), "needs_restart": later}
    level = logging.WARNING if later else logging.INFO
    _log.log(level, "the settings were reloaded", extra={"action": "reloaded", **facts})
    audit_log.note(RELOAD, {"is_done": True, **facts})
    update = {"handover": handover, "throttle": found.throttle, "log": found.log}
    return now.model_copy(update=update)


def _in_force(now: HandOver, found: HandOver) -> HandOver:
    """Return *now* with what can change at run time as *found* has it.

    Raises:
        ConfigError: That does not go with what needs a restart.
    """
    wanted = {str(setting): getattr(found, setting) for setting in RuntimeSetting}
    try:
        return HandOver.model_validate({**now.model_dump(), **wanted})
    except ValidationError as exc:
        raise ConfigError(
            f"what the settings say counts only after a restart, because the rest does not go "
            f"with it before: {_said(exc)}"
        ) from exc


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
