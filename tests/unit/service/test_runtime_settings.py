"""Tests of ``migrator.service.runtime_settings``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from migrator.config import Settings
from migrator.config.servers import Store
from migrator.errors import ConfigError
from migrator.service.runtime_settings import Reload, RuntimeSettings, changed_keys
from migrator.web.control import RuntimeSetting

Lines = Callable[[str], list[logging.LogRecord]]


class Bench:
    """One reload and everything it acts on."""

    def __init__(self, given: Settings) -> None:
        self.runtime = RuntimeSettings(given.handover)
        self.found: Settings | ConfigError = given
        self.lanes: list[int] = []
        self.throttles: list[Settings] = []
        self.notes: list[Mapping[str, object]] = []
        workers: Any = self
        audit_log: Any = self
        self.reload = Reload(
            given,
            load=self._load,
            runtime=self.runtime,
            workers=workers,
            replace_throttles=self.throttles.append,
            audit_log=audit_log,
        )

    def _load(self) -> Settings:
        if isinstance(self.found, ConfigError):
            raise self.found
        return self.found

    def set_lanes(self, wanted: int) -> bool:
        self.lanes.append(wanted)
        return True

    def wake(self) -> None:
        pass

    def note(self, kind: str, detail: Mapping[str, object]) -> None:
        assert kind == "reload"
        self.notes.append(detail)


def settings(**given: Any) -> Settings:
    """Return settings as ``load`` makes them."""
    return Settings(**given)


def test_what_can_change_does_and_the_rest_is_named(lines: Lines) -> None:
    """A mode stays, because lanes were made for it; what was set by hand gives way."""
    bench = Bench(settings(handover={"mode": "staged", "batch_size": 100}))
    bench.runtime.set(RuntimeSetting.RATE_LIMIT, "7")
    bench.found = settings(
        handover={"mode": "direct", "batch_size": 200, "lanes": 3},
        throttle={"max_level_depth": 5},
        log={"level": "debug"},
    )
    bench.reload()
    now = bench.runtime.now
    assert (now.batch_size, now.lanes, now.rate_limit, str(now.mode)) == (200, 3, 0, "staged")
    assert bench.lanes == [3]
    assert len(bench.throttles) == 1
    (note,) = bench.notes
    assert note["needs_restart"] == ["handover.mode"]
    changed = ["handover.batch_size", "handover.lanes", "log.level", "throttle.max_level_depth"]
    assert note["changed"] == changed
    assert len(lines("reloaded")) == 1
    bench.reload()
    assert bench.notes[1] == {"is_done": True, "changed": [], "needs_restart": ["handover.mode"]}
    assert len(bench.throttles) == 1


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({"hooks": {"start": "/bin/true", "timeout": "5s"}}, ["hooks.start", "hooks.timeout"]),
        ({"web": {"socket": "/run/x.sock"}}, ["web.socket"]),
        ({"web": {"token": "a-secret-of-some-length"}}, ["web.token"]),
        ({"canary": {"every": "1m"}}, ["canary.every"]),
        ({"endpoints": [{"name": "Sales"}]}, ["endpoints"]),
    ],
)
def test_what_needs_a_restart_is_named_and_never_told(
    given: dict[str, Any], keys: list[str], lines: Lines
) -> None:
    """Hooks, listeners and jobs are made once; an operator who changed them has to know."""
    bench = Bench(settings())
    bench.found = settings(**given)
    bench.reload()
    (line,) = lines("reloaded")
    assert (vars(line)["needs_restart"], vars(line)["changed"]) == (keys, [])
    assert line.levelno == logging.WARNING
    assert "a-secret" not in str(vars(line))


def test_wrong_settings_change_nothing(lines: Lines) -> None:
    """It is told, in the log and in the ledger, and the work goes on."""
    bench = Bench(settings(handover={"batch_size": 100}))
    bench.runtime.set(RuntimeSetting.BATCH_SIZE, "7")
    bench.found = ConfigError("wrong setting: x")
    bench.reload()
    assert bench.runtime.now.batch_size == 7
    assert bench.lanes == []
    assert [note["is_done"] for note in bench.notes] == [False]
    assert len(lines("reload_refused")) == 1


def test_a_secret_that_changed_is_named_and_not_told() -> None:
    """Its key says enough."""
    before = settings(store=Store(url=SecretStr("sqlite:///a")))
    after = settings(store=Store(url=SecretStr("sqlite:///b")))
    assert list(changed_keys(before, after)) == ["store.url"]


@pytest.mark.parametrize("given", [{}, {"handover": {"destination_map": {"a": "b"}}}])
def test_the_same_settings_differ_in_nothing(given: dict[str, Any]) -> None:
    """Mappings included."""
    assert list(changed_keys(settings(**given), settings(**given))) == []
