"""Tests of ``migrator.cli.run``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import pytest

from migrator.app import App
from migrator.cli import run
from migrator.config import Settings
from migrator.errors import AccessRefused, ExitCode, LedgerError
from migrator.ledger.report import HeldRows
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.preflight.broker import DelayEntities
from migrator.preflight.registry import Rechecks
from migrator.service.hooks import Fire, HookEvent
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import queue


class Launched:
    """Stands in for the daemon: remembers what it was started with."""

    def __init__(self, code: ExitCode = ExitCode.DONE) -> None:
        self.code = code
        self.calls: list[tuple[list[str], bool]] = []
        self.wants_status = False
        self.status = ""
        self.checked: list[str] = []
        self.held: list[HeldRows] = []

    def __call__(
        self,
        app: App,
        endpoints: Sequence[StoreEndpoint],
        *,
        once: bool,
        watch: Callable[[], None],
        describe: Callable[[], str],
        load: Callable[[], Settings],
        fire: Fire,
        checks: Rechecks,
        held: Callable[[Sequence[HeldRows]], None],
    ) -> ExitCode:
        """Watch twice, and end as told."""
        assert load() == app.settings
        fire(HookEvent.START, "launched", {})
        if self.wants_status:
            self.status = describe()
        self.calls.append(([endpoint.name for endpoint in endpoints], once))
        watch()
        watch()
        held(self.held)
        self.checked = [each.check for each in (*checks.refusing(), *checks.ways())]
        return self.code


@pytest.fixture
def launched(program: Program, monkeypatch: pytest.MonkeyPatch) -> Launched:
    """The stand-in, with a seeded store."""
    program.broker.probes["Sales"] = queue(1)
    made = Launched()
    monkeypatch.setattr(run, "launch", made)
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://nobody.invalid")  # nobody connects
    program.seeded()
    return made


def test_a_run_is_started_for_the_named_endpoints(program: Program, launched: Launched) -> None:
    """A daemon writes nothing to stdout."""
    assert program("run", "--endpoint", "Sales").out == ""
    assert program("run", "--all-endpoints").out == ""
    assert launched.calls == [(["Sales"], False), (["Sales"], False)]
    rechecked = {"clock-skew", "delay-entities", "policies", "suffix-collisions", "ways-out"}
    assert set(launched.checked) == rechecked


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.QUARANTINED, ExitCode.DOUBTFUL])
def test_the_outcome_is_the_exit_code(program: Program, launched: Launched, code: ExitCode) -> None:
    """And with --once the books are shown."""
    launched.code = code
    ended = program("run", "--endpoint", "Sales", "--once", "--json", codes=[code])
    assert ended.document == {
        "schema": "migrator/run/1",
        "exit_code": int(code),
        "outcome": code.name.lower(),
        "endpoints": [],
        "held": [],
    }
    assert "handed over" in program("run", "--endpoint", "Sales", "--once", codes=[code]).out


def test_a_ledger_that_cannot_be_read_afterwards_hides_no_outcome(
    program: Program, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is what counts."""

    def fail(_books: object) -> None:
        raise LedgerError("gone")

    monkeypatch.setattr("migrator.ledger.queries.SqlBooks.progress", fail)
    assert program("run", "--endpoint", "Sales", "--once").out == ""


def test_options_are_the_strongest_settings(
    program: Program, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are checked at once."""
    ended = program(
        "run", "--endpoint", "Sales", "--mode", "fast", "--cutoff", "x", "--lanes", "0", codes=[2]
    )
    assert ended.err.startswith("migrator: 3 wrong settings:")
    assert launched.calls == []


def test_somebody_has_to_say_which_endpoints(program: Program, launched: Launched) -> None:
    """Options or settings."""
    assert "which endpoints?" in program("run", codes=[2]).err
    (program.folder / "migrator.toml").write_text('[[endpoints]]\nname = "Sales"\n')
    program("run")
    assert launched.calls == [(["Sales"], False)]


def test_a_refusal_starts_nothing(program: Program, launched: Launched) -> None:
    """It says what to do; nothing was changed."""
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    ended = program("run", "--endpoint", "Sales", codes=[3])
    assert "migrator delays create --delays v2" in ended.err
    assert launched.calls == []


def test_what_is_gone_is_told_as_such(program: Program, launched: Launched) -> None:
    """A missing ledger is 3, a broker that refuses is 4, an unknown endpoint is 3."""
    program.broker.failure = AccessRefused("wrong password")
    assert "wrong password" in program("run", "--endpoint", "Sales", codes=[4]).err
    assert "no endpoint 'Nobody'" in program("run", "--endpoint", "Nobody", codes=[3]).err
    program.broker.failure = None
    program.change("DROP TABLE migrator_alembic_version")
    assert "migrator db upgrade" in program("run", "--endpoint", "Sales", codes=[3]).err
    assert launched.calls == []


@pytest.mark.parametrize("way", ["refused", "doubtful", "done"])
def test_hooks_are_told_when_a_run_ends_badly(
    program: Program, launched: Launched, way: str
) -> None:
    """Whether it began or not; a good end is no news."""
    hook = program.folder / "hook"
    hook.write_text(f"#!/bin/sh\ncat >>{program.folder}/told\n")
    hook.chmod(0o755)
    (program.folder / "migrator.toml").write_text(
        f'[hooks]\nstart = "{hook}"\nfailure = "{hook}"\n'
    )
    code = {"refused": 3, "doubtful": 6, "done": 0}[way]
    launched.code = ExitCode(code)
    name = "Nobody" if way == "refused" else "Sales"
    program("run", "--endpoint", name, codes=[code])
    lines = (program.folder / "told").read_text().splitlines()
    found = [(told["event"], told["facts"].get("exit_code")) for told in map(json.loads, lines)]
    assert found == [
        *([("start", None)] if way != "refused" else []),
        *([("failure", code)] if way != "done" else []),
    ]


def test_warnings_are_logged_and_do_not_stop_it(program: Program, launched: Launched) -> None:
    """One line each, for machines."""
    lines = [json.loads(line) for line in program("run", "--endpoint", "Sales").err.splitlines()]
    found = {line["check"]: line for line in lines if line.get("action") == "preflight_finding"}
    assert found["unattended-rows"]["finding"] == "warning"
    assert found["unattended-rows"]["level"] == "warning"
    assert launched.calls


def test_what_waits_in_the_store_is_told_at_the_end(program: Program, launched: Launched) -> None:
    """Per destination, as a table and as JSON."""
    waiting = HeldRows(
        endpoint=EndpointName("Sales"),
        destination="Gone",
        reason="destination-unknown",
        detail="no queue",
        rows=7,
    )
    launched.code, launched.held = ExitCode.QUARANTINED, [waiting]
    once = ("run", "--endpoint", "Sales", "--once")
    assert "Gone" in program(*once, codes=[5]).out
    (told,) = program(*once, "--json", codes=[5]).document["held"]
    assert (told["destination"], told["rows"]) == ("Gone", 7)


def test_a_dry_run_is_a_preview(program: Program, launched: Launched) -> None:
    """Nothing is started."""
    assert "Sales (Sales_TimeoutData)" in program("run", "--endpoint", "Sales", "--dry-run").out
    document = program("run", "--endpoint", "Sales", "--dry-run", "--json").document
    assert document["schema"] == "migrator/preview/1"
    assert launched.calls == []


def test_the_service_manager_is_told_the_counts(program: Program, launched: Launched) -> None:
    """In the words that a terminal shows."""
    launched.wants_status = True
    program("run", "--endpoint", "Sales")
    assert launched.status == "0 handed over, 0 in flight, 0 in quarantine; idle"


def test_progress_is_shown_on_a_terminal(
    program: Program, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most every two seconds."""
    looks: list[object] = []

    def line(progress: object) -> str:
        looks.append(progress)
        return "all is well"

    monkeypatch.setattr(run, "progress_line", line)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert program("run", "--endpoint", "Sales").out == ""
    assert len(looks) == 1


def test_progress_that_cannot_be_read_stops_nothing(
    program: Program, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work goes on."""

    def fail(_books: object) -> None:
        raise LedgerError("gone")

    monkeypatch.setattr("migrator.ledger.queries.SqlBooks.progress", fail)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    program("run", "--endpoint", "Sales")
    assert launched.calls


def test_progress_is_one_line(program: Program, launched: Launched) -> None:
    """What was done, what is under way, what needs a person, and who does what."""
    from tests.unit.cli.test_status import DISPATCHING, PROGRESS

    assert run.progress_line(PROGRESS) == "90 handed over, 6 in flight, 3 in quarantine; idle"
    assert run.progress_line(DISPATCHING) == (
        "0 handed over, 40 dispatched, 2 in flight, 0 in quarantine, 1 destinations held; "
        "dispatcher public.Sales_TimeoutData: dispatching: 2 wait for their time"
    )
