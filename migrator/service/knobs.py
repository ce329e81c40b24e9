"""What can be set while the daemon runs; after a restart, or a reload, the settings count again."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pydantic import ValidationError

from migrator.config import HandOver
from migrator.config.values import build_duration
from migrator.errors import ConfigError
from migrator.handover.lane import Pace
from migrator.stores.endpoints import Selection
from migrator.web.control import Knob


class Knobs:
    """The values in force; lanes read them before each batch, from any thread."""

    def __init__(self, given: HandOver) -> None:
        """Begin with what the settings say."""
        self._lock = threading.Lock()
        self._now = given

    @property
    def now(self) -> HandOver:
        """The section of the settings as it is in force."""
        return self._now

    def pace(self) -> Pace:
        """Return how much at a time, and how fast."""
        now = self._now
        # a second's worth at most, so that a slow rate does not make a stop slow
        rows = min(now.batch_size, now.rate_limit or now.batch_size)
        return Pace(batch_rows=rows, rate_limit_per_s=now.rate_limit)

    def selection(self) -> Selection:
        """Return which rows are to be migrated."""
        now = self._now
        return Selection(cutoff=now.cutoff, horizon=now.horizon)

    def turn(self, knob: Knob, value: str) -> str:
        """Set *knob* to *value*, as in the settings file; return what was in force before.

        Raises:
            ConfigError: It cannot have that value; says what it may be. Nothing was changed.
        """
        with self._lock:
            before = self.texts()[knob]
            self._now = _changed(self._now, knob, value)
            return before

    def reset(self, given: HandOver) -> None:
        """Let the settings count again."""
        with self._lock:
            self._now = given

    def texts(self) -> Mapping[str, str]:
        """Return every knob with its value, as in the settings file."""
        now = self._now
        return {
            Knob.BATCH_SIZE: str(now.batch_size),
            Knob.RATE_LIMIT: str(now.rate_limit),
            Knob.LANES: str(now.lanes),
            Knob.CUTOFF: build_duration(now.cutoff),
        }


def _changed(now: HandOver, knob: Knob, value: str) -> HandOver:
    try:
        return HandOver.model_validate({**now.model_dump(), str(knob): value})
    except ValidationError as exc:
        said = "; ".join(each["msg"].removeprefix("Value error, ") for each in exc.errors())
        raise ConfigError(f"{knob} cannot be {value!r}: {said[:1].lower()}{said[1:]}") from exc
