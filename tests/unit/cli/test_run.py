"""Tests of ``migrator.cli.run`` and ``running``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from migrator.app.servers import Servers
from migrator.cli import running as run
from migrator.delays.topology import DelayEntities
from migrator.errors import AccessRefused, ExitCode, LedgerError
from migrator.ledger.report import HeldRows
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.daemon import RunEnd
from migrator.service.hooks import HookEvent
from migrator.status.finished import EndpointEnd
from tests.support.panel import SALES, some_remaining
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import queue


class Launched:
    """Stands in for the daemon: remembers what it was started with."""

    def __init__(self) -> None:
        self.code = ExitCode.DONE
        self.calls: list[tuple[list[str], bool]] = []
        self.held: list[HeldRows] = []
        self.ends: list[EndpointEnd] = []
        self.told: list[str] = []

    def __call__(
        self, servers: Servers, endpoints: Sequence[StoreEndpoint], *, once: bool, **given: Any
    ) -> RunEnd:
        """Do what the daemon does with what it is given, and end as told."""
        assert given["load"]() == servers.settings
        given["fire"](HookEvent.START, "launched", {})
        given["watch"]()
        self.told.append(given["describe"]())
        self.calls.append(([endpoint.name for endpoint in endpoints], once))
        return RunEnd(code=self.code, held=self.held, endpoints=self.ends)


@pytest.fixture
def launched(program: Program, monkeypatch: pytest.MonkeyPatch) -> Launched:
    """The stand-in, with a seeded store."""
    program.broker.probes["Sales"] = queue(1)
    made = Launched()
    monkeypatch.setattr(run, "run_daemon", made)
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://nobody.invalid")  # nobody connects
    program.seeded()
    return made


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.QUARANTINED, ExitCode.DOUBTFUL])
def test_the_outcome_is_the_exit_code(program: Program, launched: Launched, code: ExitCode) -> None:
    """And with --once the counts are shown, with what waits in the store for a destination."""
    launched.code = code
    launched.held = [
        HeldRows(
            endpoint=EndpointName("Sales"),
            destination="Gone",
            reason="destination-unknown",
            detail="no queue",
            rows=7,
        )
    ]
    once = ("run", "--endpoint", "Sales", "--once")
    document = program(*once, "--json", codes=[code]).document
    (held,) = document.pop("held")
    assert (held["destination"], held["rows"]) == ("Gone", 7)
    (endpoint,) = document.pop("endpoints")
    assert (endpoint["endpoint"], endpoint["claimed_total"]) == ("Sales", 0)
    assert document == {
        "schema": "migrator/run/1",
        "exit_code": int(code),
        "outcome": code.name.lower(),
        "left_out": [],
        "content_kept": None,
    }
    shown = program(*once, codes=[code]).out
    assert ("handed over" in shown, "Gone" in shown) == (True, True)
    assert program("run", "--all-endpoints", codes=[code]).out == ""
    assert launched.calls == [(["Sales"], True)] * 2 + [(["Sales"], False)]
    assert launched.told[0] == "0 handed over, 0 in flight, 0 in quarantine; idle"


def test_what_is_told_is_of_the_endpoints_of_the_run(program: Program, launched: Launched) -> None:
    """A ledger serves several: rows of others are in no table, document or sum."""
    program("seed", "--yes", "--endpoint", "Billing", "--count", "4")
    program.broker.probes["Billing"] = queue(1)
    program.claimed(3)
    program.claimed(4, "Billing")
    held = "'destination-unknown', 'no queue', 1, '2026-03-10 09:30:00', '2026-03-10 09:30:00'"
    program.change(
        "INSERT INTO migrator_held_destination (endpoint, source, destination, reason, detail,"
        f" tries, since, next_try_at) VALUES ('Billing', 'Billing_TimeoutData', 'Gone', {held})"
    )
    sales = ("run", "--endpoint", "Sales", "--once")
    shown = program(*sales).out
    assert ("Sales" in shown, "Billing" in shown) == (True, False)
    (found,) = program(*sales, "--json").document["endpoints"]
    assert (found["endpoint"], found["in_flight"]) == ("Sales", 3)
    both = program("run", "--all-endpoints", "--once", "--json").document["endpoints"]
    assert [(each["endpoint"], each["in_flight"]) for each in both] == [
        ("Billing", 4),
        ("Sales", 3),
    ]
    assert launched.told == [
        *["0 handed over, 3 in flight, 0 in quarantine; idle"] * 2,
        "0 handed over, 7 in flight, 0 in quarantine, 1 destination parked; idle",
    ]


def test_what_is_left_is_told_at_the_end(program: Program, launched: Launched) -> None:
    """Rows that nobody sends are in no count of the ledger: an end without a word would hide them.

    In the document as well; null where it could not be found out.
    """
    left = some_remaining(0, left=863, overdue=863)
    end = EndpointEnd(endpoint=SALES, progress=None, remaining=left, is_finished=True)
    keys = ("is_finished", "left", "overdue", "later", "sent_by", "text")
    once = ("run", "--endpoint", "Sales", "--once")
    (found,) = program(*once, "--json").document["endpoints"]
    assert [found[key] for key in keys] == [None] * 6
    assert "Done" not in program(*once).out
    launched.ends = [end]
    (found,) = program(*once, "--json").document["endpoints"]
    text = (
        "Done: 0 moved. 863 are left to the timeout manager (cutoff 1m): all overdue, and nothing "
        "consumes `Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    )
    assert [found[key] for key in keys] == [True, 863, 863, 0, "nobody", text]
    assert program(*once).out.splitlines()[2] == f"Sales: {text}"


def test_the_end_has_the_colours_of_status(
    program: Program, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, while rows stay that nobody sends or that wait for a destination."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    left = some_remaining(0, left=8, overdue=8)
    launched.held = [
        HeldRows(endpoint=SALES, destination="Gone", reason="no-queue", detail="", rows=7)
    ]
    launched.ends = [EndpointEnd(endpoint=SALES, progress=None, remaining=left, is_finished=True)]
    once = ("run", "--endpoint", "Sales", "--once")
    assert "\x1b" not in program(*once).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = program(*once).out
    assert "\n\x1b[33mSales: Done: 0 moved. 8 are left" in shown
    assert "\n\x1b[33mGone" in shown
    fine = some_remaining(0)
    launched.held = []
    launched.ends = [EndpointEnd(endpoint=SALES, progress=None, remaining=fine, is_finished=True)]
    assert "\x1b[33m" not in program(*once).out


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
    """Options or settings, of which options win; not two that contradict each other."""
    assert "which endpoints?" in program("run", codes=[2]).err
    both = ("run", "--endpoint", "Sales", "--all-endpoints")
    assert "exclude each other" in program(*both, codes=[2]).err
    program("seed", "--yes", "--endpoint", "Billing", "--count", "1")
    (program.folder / "migrator.toml").write_text('[[endpoints]]\nname = "Sales"\n')
    program.broker.probes["Billing"] = queue(1)
    for options in ((), ("--endpoint", "Billing"), ("--all-endpoints",)):
        program("run", *options)
    assert [names for names, _ in launched.calls] == [["Sales"], ["Billing"], ["Billing", "Sales"]]


def test_a_refusal_starts_nothing(program: Program, launched: Launched) -> None:
    """Missing delays and ledger, an unknown endpoint are 3, a broker that refuses is 4."""
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    run = ("run", "--endpoint", "Sales")
    assert "migrator delays create --delays v2" in program(*run, codes=[3]).err
    assert "no endpoint 'Nobody'" in program("run", "--endpoint", "Nobody", codes=[3]).err
    program.broker.failure = AccessRefused("wrong password")
    assert "wrong password" in program(*run, codes=[4]).err
    program.change("DROP TABLE migrator_alembic_version")
    assert "migrator db upgrade" in program(*run, codes=[3]).err
    assert launched.calls == []


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("Nobody", 3, [("failure", 3)]),
        ("Sales", 6, [("start", None), ("failure", 6)]),
        ("Sales", 0, [("start", None)]),
    ],
    ids=["refused", "doubtful", "done"],
)
def test_hooks_are_told_when_a_run_ends_badly(
    program: Program, launched: Launched, name: str, code: int, told: list[tuple[str, object]]
) -> None:
    """Whether it began or not; a good end is no news."""
    hook = program.folder / "hook"
    hook.write_text(f"#!/bin/sh\ncat >>{program.folder}/told\n")
    hook.chmod(0o755)
    settings = f'[hooks]\nstart = "{hook}"\nfailure = "{hook}"\n'
    (program.folder / "migrator.toml").write_text(settings)
    launched.code = ExitCode(code)
    program("run", "--endpoint", name, codes=[code])
    found = map(json.loads, (program.folder / "told").read_text().splitlines())
    assert [(each["event"], each["facts"].get("exit_code")) for each in found] == told


def test_warnings_are_logged_and_do_not_stop_it(program: Program, launched: Launched) -> None:
    """One line each, for machines."""
    lines = [json.loads(line) for line in program("run", "--endpoint", "Sales").err.splitlines()]
    found = {line["check"]: line for line in lines if line.get("action") == "preflight_finding"}
    assert found["unattended-rows"]["finding"] == "warning"
    assert found["unattended-rows"]["level"] == "warning"
    assert launched.calls


def test_progress_that_cannot_be_read_stops_nothing(
    program: Program, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work goes on, and the exit code is what counts."""

    def fail(_queries: object) -> None:
        raise LedgerError("gone")

    monkeypatch.setattr("migrator.ledger.queries.LedgerQueries.progress", fail)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert program("run", "--endpoint", "Sales", "--once").out == ""
    assert launched.told == ["the ledger cannot be read now"]


def test_progress_is_one_line(program: Program, launched: Launched) -> None:
    """What was done, what is under way, what needs a person, and who does what."""
    from tests.unit.cli.test_status import DISPATCHING, PROGRESS

    assert run.progress_line(PROGRESS) == "90 handed over, 6 in flight, 3 in quarantine; idle"
    assert run.progress_line(DISPATCHING) == (
        "0 handed over, 40 dispatched, 2 in flight, 0 in quarantine, 1 destination parked; "
        "dispatcher public.Sales_TimeoutData: dispatching: 2 rows wait until due"
    )
