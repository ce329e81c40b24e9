"""Tests of ``migrator.service.runtime_settings``; the rest is shown by a real SIGHUP."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from migrator.config import Settings, ThrottleSettings
from migrator.errors import ConfigError
from migrator.service.runtime_settings import RuntimeSettings, read_anew
from migrator.web.control import RuntimeSetting
from tests.unit.service.conftest import Events

BEFORE = {"handover": {"mode": "staged", "batch_size": 100}}


@pytest.mark.parametrize(
    ("found", "changed", "later"),
    [
        ({}, [], []),
        ({"handover": {"mode": "direct", "batch_size": 200}}, ["batch_size"], ["handover.mode"]),
        ({"hooks": {"start": "/bin/true", "timeout": "5s"}}, [], ["hooks.start", "hooks.timeout"]),
        ({"web": {"token": "a-secret-of-some-length"}}, [], ["web.token"]),
        ({"store": {"url": "sqlite:///a-secret"}}, [], ["store.url"]),
        ({"endpoints": [{"name": "Sales"}]}, [], ["endpoints"]),
    ],
)
def test_what_needs_a_restart_is_named_and_never_told(
    found: dict[str, Any],
    changed: list[str],
    later: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Lanes, hooks, listeners and jobs are made once; what was set by hand gives way."""
    caplog.set_level(logging.INFO)
    events, polls, given = Events(), _Polls(), Settings.model_validate(BEFORE)
    runtime, workers, audit_log = RuntimeSettings(given.handover), _Workers(), events
    runtime.set(RuntimeSetting.RATE_LIMIT, "7")
    for _ in range(2):
        given = read_anew(
            given,
            lambda: Settings.model_validate(BEFORE | found),
            runtime=runtime,
            workers=workers,  # type: ignore[arg-type]  # only what is asked
            polls=polls,
            audit_log=audit_log,  # type: ignore[arg-type]  # the same
        )
    names = [f"handover.{name}" for name in changed]
    assert events.of("reload") == [
        {"is_done": True, "changed": names, "needs_restart": later},
        {"is_done": True, "changed": [], "needs_restart": later},
    ]
    assert (runtime.now.rate_limit, str(runtime.now.mode), polls.used) == (0, "staged", [])
    assert caplog.records[-1].levelno == (logging.WARNING if later else logging.INFO)
    assert "a-secret" not in str([vars(record) for record in caplog.records])


def test_values_that_move_no_row_are_refused_and_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor do they where a reload brings one of the two, and the other needs a restart."""
    given = Settings.model_validate({"handover": {"horizon": "1h"}})
    runtime, events = RuntimeSettings(given.handover), Events()
    with pytest.raises(ConfigError, match=r"cutoff cannot be '1h': horizon \(1h\) must"):
        runtime.set(RuntimeSetting.CUTOFF, "1h")
    after = read_anew(
        given,
        lambda: Settings.model_validate({"handover": {"horizon": "9h", "cutoff": "3h"}}),
        runtime=runtime,
        workers=_Workers(),  # type: ignore[arg-type]  # only what is asked
        polls=_Polls(),
        audit_log=events,  # type: ignore[arg-type]  # the same
    )
    assert after == given
    assert runtime.now == given.handover
    assert "counts only after a restart" in str(events.of("reload"))


class _Workers:
    """A pool of one lane."""

    def set_lanes(self, wanted: int) -> bool:
        return wanted == 1

    def wake(self) -> None:
        pass


class _Polls:
    """Remembers what is polled."""

    def __init__(self) -> None:
        self.used: list[ThrottleSettings] = []

    def use(self, given: ThrottleSettings) -> None:
        self.used.append(given)

    def end(self) -> None:
        pass
