"""Tests of ``migrator.service.hooks``, with real programs."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from migrator.config import Hooks as Given
from migrator.config.load import from_environment
from migrator.errors import ExitCode, StoreUnavailable
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import EndpointProgress, Progress, QuarantineCount
from migrator.nservicebus.timeouts import EndpointName
from migrator.service import hooks as module
from migrator.service.hooks import (
    QUIET_S,
    HookEvent,
    HookEvents,
    Hooks,
    fire_exit,
    fire_rollback,
    hooked,
)

Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]
Write = Callable[[str], Path]
START, THROTTLE, DRAINED = HookEvent.START, HookEvent.THROTTLE, HookEvent.DRAINED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where programs leave what they saw; the ``$0`` of each is in it."""
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a shell program whose working folder is the test's own."""

    def program(text: str) -> Path:
        path = folder / f"hook-{len(list(folder.iterdir()))}"
        path.write_text(f'#!/bin/sh\ncd "$(dirname "$0")" || exit 99\n{text}\n', encoding="utf-8")
        path.chmod(0o755)
        return path

    return program


@pytest.fixture(autouse=True)
def nothing_is_left(lines: Lines) -> Iterator[None]:
    """Demand that no test leaves a program behind, or met a bug."""
    before = {*psutil.Process().children()}  # servers of other tests, which have children, too
    yield
    assert {*psutil.Process().children()} <= before
    assert [line for line in lines("hook_failed") if line.exc_info] == []


def hooks(
    path: Path, *events: HookEvent, timeout_s: float = 20, environ: Mapping[str, str] | None = None
) -> Hooks:
    """Return hooks that run one program at every event, or at those named."""
    return Hooks(
        dict.fromkeys(events or HookEvent, path),
        timeout=timedelta(seconds=timeout_s),
        environ={"PATH": os.environ["PATH"], **(environ or {})},
        owner="me",
    )


def spend(told: Hooks) -> None:
    """Have the time of every program be over, whether it began just now or long ago."""
    told._timeout_s = 0.0


def facts(line: logging.LogRecord) -> dict[str, Any]:
    """Return what a line says beyond its text."""
    return vars(line)


def is_written(file: Path) -> bool:
    """Return whether a program has written a line into *file*."""
    return file.exists() and file.read_text().endswith("\n")


def is_running(pid_file: Path) -> bool:
    """Return whether the process that wrote its number into a file still runs."""
    try:
        process = psutil.Process(int(pid_file.read_text()))
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# ── what a program is told ──────────────────────────────────────────────────────────────────────


def test_a_program_reads_the_event_as_json(write: Write, folder: Path, lines: Lines) -> None:
    """One line on its stdin, with the schema, the event, the time, a text, and the facts."""
    path = write("cat >told")
    with hooks(path) as told:
        told.fire(THROTTLE, "held: level_depth", {"began": True, "endpoint": None, "n": 3})
    found = json.loads((folder / "told").read_text())
    at = datetime.fromisoformat(found.pop("at"))
    assert at.utcoffset() == timedelta(0)
    assert found.pop("version")
    assert found == {
        "schema": "migrator/hook/1",
        "event": "throttle",
        "text": "held: level_depth",
        "owner": "me",
        "facts": {"began": True, "endpoint": None, "n": 3},
    }
    (line,) = lines("hook_ran")
    assert facts(line)["program"] == str(path)
    assert (facts(line)["hook"], facts(line)["status"]) == ("throttle", 0)


def test_its_environment_holds_nothing_of_ours(write: Write, folder: Path) -> None:
    """PATH, LANG and the event in a line; no setting, no secret, whatever we were given."""
    path = write("env >variables; ls -l /proc/$$/fd >files; pwd -P >/dev/null; umask >mask")
    ours = {
        "LANG": "de_AT.UTF-8",
        "MIGRATOR_STORE__URL": "postgresql://nsb:secret@db/x",
        "AWS_SECRET": "s",
    }
    with hooks(path, environ=ours) as told:
        told.fire(START, "two\nlines\0 and half a character: \ud83d", {})
    given = dict(line.split("=", 1) for line in (folder / "variables").read_text().splitlines())
    assert {key: given[key] for key in given if key not in ("PWD", "OLDPWD", "_", "SHLVL")} == {
        "PATH": os.environ["PATH"],
        "LANG": "de_AT.UTF-8",
        "MIGRATOR_EVENT": "start",
        "MIGRATOR_EVENT_TEXT": "two lines and half a character: ?",
    }
    assert given["OLDPWD"] == "/"
    assert "socket:" not in (folder / "files").read_text()


def test_path_and_language_have_values_of_their_own_when_we_have_none(
    write: Write, folder: Path
) -> None:
    """As in a unit or a container without any."""
    told = Hooks({START: write("env >variables")}, timeout=timedelta(seconds=20), environ={})
    with told:
        told.fire(START, "begun", {})
    variables = (folder / "variables").read_text().splitlines()
    assert "LANG=C.UTF-8" in variables
    assert any(line.startswith("PATH=/usr/local/sbin:") for line in variables)


def test_a_hook_may_call_migrator() -> None:
    """The variables it gets are no unknown settings."""
    assert from_environment({"MIGRATOR_EVENT": "start", "MIGRATOR_EVENT_TEXT": "x"}) == ({}, [])


def test_passwords_in_what_is_told_are_masked(write: Write, folder: Path) -> None:
    """In the text as well as deep in the facts."""
    with hooks(write('cat >told; echo "$MIGRATOR_EVENT_TEXT" >text')) as told:
        error = "no answer from amqp://nsb:hunter2@broker/"
        told.fire(HookEvent.FAILURE, error, {"errors": [{"why": error}]})
    for name in ("told", "text"):
        text = (folder / name).read_text()
        assert "amqp://nsb:***@broker" in text
        assert "hunter2" not in text


def test_long_texts_are_cut_between_words(write: Write, folder: Path) -> None:
    """So that looking for passwords in them takes no time, and no half of one is left."""
    text = "x" * 990 + " amqp://nsb:hunter2@broker/ is down"
    with hooks(write("cat >told")) as told:
        told.fire(DRAINED, text, {"why": text, "endless": "x" * 1_000_000})
    found = json.loads((folder / "told").read_text())
    assert found["text"] == found["facts"]["why"] == "x" * 990 + " …"
    assert found["facts"]["endless"] == "…"


def test_events_are_told_one_by_one_in_their_order(write: Write, folder: Path) -> None:
    """No program is started before the one before it has ended."""
    path = write('echo "begin $MIGRATOR_EVENT_TEXT" >>log; sleep 0.05; echo "end" >>log')
    with hooks(path, THROTTLE, DRAINED) as told:
        for number in range(4):
            told.fire(DRAINED, str(number), {})
        told.fire(START, "has no program", {})
    expected = [line for number in range(4) for line in (f"begin {number}", "end")]
    assert (folder / "log").read_text().splitlines() == expected


# ── what programs can do wrong ──────────────────────────────────────────────────────────────────


def test_one_that_hangs_is_ended_with_everything_it_started(
    write: Write, folder: Path, lines: Lines, wait_for: WaitFor
) -> None:
    """After its time, by SIGTERM; the next event is told as if nothing had been."""
    hanging = write("echo $$ >leader; sleep 600 & echo $! >child; echo here; wait")
    other = write("echo ran >other")
    told = Hooks({START: hanging, DRAINED: other}, timeout=timedelta(seconds=60))
    with told:
        told.fire(START, "begun", {})
        wait_for(lambda: is_written(folder / "child"))
        spend(told)
        wait_for(lambda: bool(lines("hook_timed_out")))
        told._timeout_s = 60.0
        told.fire(DRAINED, "done", {})
        wait_for(lambda: (folder / "other").exists())
    wait_for(lambda: not is_running(folder / "leader"))
    wait_for(lambda: not is_running(folder / "child"))
    (line,) = lines("hook_timed_out")
    assert (line.levelno, facts(line)["status"]) == (logging.WARNING, -15)
    assert facts(line)["is_gone"]


def test_one_that_hangs_has_its_time_first(write: Write, lines: Lines) -> None:
    """Not less of it, and not much more."""
    with hooks(write("exec sleep 600"), timeout_s=0.3) as told:
        told.fire(DRAINED, "done", {})
    (line,) = lines("hook_timed_out")
    assert 0.3 <= facts(line)["seconds"] < 20


def test_one_that_ignores_sigterm_is_killed(
    write: Write, folder: Path, lines: Lines, wait_for: WaitFor
) -> None:
    """A second later, and so is what it started and what ignores it as well."""
    path = write("trap '' TERM; echo $$ >leader; sleep 600 & echo $! >child; while :; do :; done")
    with hooks(path, timeout_s=60) as told:
        told.fire(DRAINED, "done", {})
        wait_for(lambda: is_written(folder / "child"))
        spend(told)
        wait_for(lambda: bool(lines("hook_timed_out")))
    (line,) = lines("hook_timed_out")
    assert facts(line)["status"] == -9
    assert 1.0 <= facts(line)["seconds"] < 50
    wait_for(lambda: not is_running(folder / "leader"))
    wait_for(lambda: not is_running(folder / "child"))


def test_what_a_program_leaves_behind_ends_with_it(
    write: Write, folder: Path, lines: Lines, wait_for: WaitFor
) -> None:
    """Also when it keeps the pipe open and ignores signals, so that nothing waits for it."""
    path = write("(trap '' TERM HUP; exec sleep 600) & echo $! >child")
    with hooks(path) as told:
        told.fire(DRAINED, "done", {})
    wait_for(lambda: not is_running(folder / "child"))
    (line,) = lines("hook_ran")
    assert facts(line)["seconds"] < 15


def test_one_that_fails_is_told_with_its_status(
    write: Write, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    """And what it wrote is there for who wants to know, in a debug line."""
    path = write("echo to stdout; echo to stderr >&2; exit 3")
    with caplog.at_level(logging.DEBUG), hooks(path) as told:
        told.fire(DRAINED, "done", {})
    (line,) = lines("hook_failed")
    assert (line.levelno, facts(line)["status"]) == (logging.WARNING, 3)
    (said,) = lines("hook_said")
    assert (said.levelno, facts(said)["output"]) == (logging.DEBUG, "to stdout\nto stderr\n")


def test_one_that_does_not_read_is_fine(write: Write, lines: Lines) -> None:
    """However much there is to read: nobody waits for it to do so."""
    with hooks(write("exit 0")) as told:
        told.fire(DRAINED, "done", {"much": list(range(100_000))})
    assert len(lines("hook_ran")) == 1


def test_one_that_writes_megabytes_gets_rid_of_them(
    write: Write, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends by itself, and only the end of what it wrote is kept."""
    path = write("head -c 2000000 /dev/zero; echo; echo the end")
    with caplog.at_level(logging.DEBUG), hooks(path) as told:
        told.fire(DRAINED, "done", {})
    assert len(lines("hook_ran")) == 1
    (said,) = lines("hook_said")
    assert facts(said)["output_bytes"] > 1_900_000
    assert len(facts(said)["output"]) <= 4096
    assert facts(said)["output"].endswith("\nthe end\n")


def test_one_that_writes_without_end_costs_us_little(
    write: Write, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read slowly until its time is over: a pipe full of it, a hundred times a second."""
    with caplog.at_level(logging.DEBUG), hooks(write("exec yes"), timeout_s=0.5) as told:
        told.fire(DRAINED, "done", {})
    (line,), (said,) = lines("hook_timed_out"), lines("hook_said")
    looks = facts(line)["seconds"] / 0.01
    assert 0 < facts(said)["output_bytes"] <= (looks + 2) * 64 * 1024


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (None, 0, "No such file"),
        ("#!/bin/sh\n", 0o644, "Permission denied"),
        ("echo no first line\n", 0o755, "Exec format error"),
        ("#!/no/such/shell\n", 0o755, "No such file"),
    ],
    ids=["missing", "not executable", "no first line", "no interpreter"],
)
def test_one_that_cannot_be_started_is_told(
    folder: Path, lines: Lines, text: str | None, mode: int, why: str
) -> None:
    """At the event, with the reason; what is plain to see is told at the start already."""
    path = folder / "hook"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with hooks(path, DRAINED) as told:
        at_start = lines("hook_failed")
        assert bool(at_start) is (mode != 0o755)
        told.fire(DRAINED, "done", {})
    last = lines("hook_failed")[-1]
    assert why in facts(last)["error"]
    assert (facts(last)["hook"], facts(last)["program"]) == ("drained", str(path))


# ── nobody waits ────────────────────────────────────────────────────────────────────────────────


def test_to_fire_takes_next_to_no_time(
    write: Write, lines: Lines, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a program hangs, and when the queue is full: then events are dropped, and told."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.2)
    told = hooks(write("exec sleep 600"), timeout_s=60)
    told.start()
    told.fire(THROTTLE, "the first", {})
    wait_for(lambda: not told._waiting)
    took_s: list[float] = []
    for number in range(module._MOST + 50):
        before_s = time.perf_counter()
        told.fire(THROTTLE, str(number), {})
        took_s.append(time.perf_counter() - before_s)
    assert max(took_s) < 20  # a busy machine may keep a thread from work for a while
    assert median(took_s) < 0.005
    dropped = lines("hook_dropped")
    assert [facts(line)["count"] for line in dropped] == list(range(1, len(dropped) + 1))
    assert len(dropped) == 50
    assert facts(dropped[-1])["text"] == str(module._MOST + 49)
    before_s = time.monotonic()
    told.end()
    assert time.monotonic() - before_s < 30
    assert facts(lines("hook_dropped")[-1])["count"] > module._MOST


def test_without_a_program_there_is_no_thread(lines: Lines) -> None:
    """Nothing is started, and nothing ends."""
    with Hooks({}, timeout=timedelta(seconds=1)) as told:
        assert not told._thread.is_alive()
        told.fire(START, "begun", {})
    assert not lines("hook_dropped")


# ── the end of the process ──────────────────────────────────────────────────────────────────────


def test_the_last_events_get_their_time_though_another_program_hangs(
    write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines, wait_for: WaitFor
) -> None:
    """What is of the moment is given up soon; who asked to be told of the end is."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.2)
    hanging = write("echo here >hanging; exec sleep 600")
    last = write("sleep 0.5; echo told >last")
    told = Hooks(
        {THROTTLE: hanging, HookEvent.FAILURE: last}, timeout=timedelta(seconds=60), owner="me"
    )
    told.start()
    for _ in range(3):
        told.fire(THROTTLE, "held", {})
    told.fire(HookEvent.FAILURE, "exit code 4", {})
    wait_for(lambda: is_written(folder / "hanging"))
    before_s = time.monotonic()
    told.end()
    assert 0.7 <= time.monotonic() - before_s < 50
    assert (folder / "last").read_text() == "told\n"
    assert len(lines("hook_timed_out")) == 1
    assert [facts(line)["why"] for line in lines("hook_dropped")] == ["the end"] * 2


def test_the_end_comes_though_the_last_program_hangs(
    write: Write, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """All of them together have as long as one ever has."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.1)
    told = hooks(write("exec sleep 600"), timeout_s=0.4)
    told.start()
    told.fire(HookEvent.FAILURE, "one", {})
    told.fire(HookEvent.FAILURE, "two", {})
    told.fire(HookEvent.FAILURE, "three", {})
    before_s = time.monotonic()
    told.end()
    assert time.monotonic() - before_s < 20
    told.fire(HookEvent.FAILURE, "four", {})
    late, dropped = len(lines("hook_timed_out")), len(lines("hook_dropped"))
    assert late + dropped == 4
    assert dropped >= 2  # of the first three, one had no time left
    assert facts(lines("hook_dropped")[-1])["text"] == "four"


def test_an_interpreter_that_is_slow_to_start_is_no_problem(write: Write, folder: Path) -> None:
    """A Python program is a hook like any other."""
    path = folder / "hook.py"
    path.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        "told = json.load(sys.stdin)\n"
        "(pathlib.Path(sys.argv[0]).parent / 'told').write_text(told['event'])\n"
    )
    path.chmod(0o755)
    with hooks(path) as told:
        told.fire(START, "begun", {})
        told.fire(DRAINED, "done", {})
    assert (folder / "told").read_text() == "drained"


# ── settings ────────────────────────────────────────────────────────────────────────────────────


def test_each_event_can_have_its_program() -> None:
    """The settings have a key for each event, and nothing else but the timeout."""
    assert set(Given.model_fields) == {*map(str, HookEvent), "timeout"}
    given = Given(start=Path("/a"), failure=Path("/b"))
    assert given.programs == {HookEvent.START: Path("/a"), HookEvent.FAILURE: Path("/b")}
    assert Given().programs == {}


@pytest.mark.parametrize(
    ("key", "value"), [("start", "hook"), ("timeout", "2m"), ("timeout", "0s"), ("begin", "/a")]
)
def test_what_cannot_be_a_hook_is_refused(key: str, value: str) -> None:
    """A relative path, a time that is none or too long, an event that does not exist."""
    with pytest.raises(ValueError, match="validation error"):
        Given.model_validate({key: value})


# ── what a daemon fires ──────────────────────────────────────────────────────────────────────────


SALES, BILLING = EndpointName("Sales"), EndpointName("Billing")
NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


class World:
    """What hook events are made of, and what was fired."""

    def __init__(self) -> None:
        self.told: list[tuple[HookEvent, str, Mapping[str, object]]] = []
        self.now_s = 1000.0
        self.is_idle = True
        self.hook_events = HookEvents(
            self.fire, [SALES], is_idle=lambda: self.is_idle, clock_s=lambda: self.now_s
        )

    def fire(self, event: HookEvent, text: str, facts: Mapping[str, object]) -> None:
        json.dumps(facts)  # it must be possible
        self.told.append((event, text, facts))

    def look(self, *, after_s: float = 2.0, **rows: int) -> None:
        """Have the ledger of ``Sales`` be read, some time after the last."""
        self.now_s += after_s
        self.hook_events.polled(progress(endpoint=SALES, **rows))

    @property
    def events(self) -> list[HookEvent]:
        return [event for event, _, _ in self.told]


@pytest.fixture
def world() -> World:
    """A world in which nothing has happened."""
    return World()


def progress(*, endpoint: EndpointName = SALES, **rows: int) -> Progress:
    """Return a ledger with so many rows in each state."""
    aside = rows.get("quarantined", 0)
    return Progress(
        taken_at=NOW,
        endpoints=[EndpointProgress(endpoint=endpoint, rows=rows)],
        quarantine=[QuarantineCount(endpoint=endpoint, reason="refused", rows=aside)]
        if aside
        else [],
        doubtful=(),
        oldest_open_age=None,
        lanes=(),
    )


def test_the_start_names_the_endpoints(world: World) -> None:
    """As soon as the work has begun."""
    world.hook_events.started()
    assert world.told == [(HookEvent.START, "working on Sales", {"endpoints": ["Sales"]})]


def test_a_hold_is_told_when_it_begins_and_when_it_ends(world: World) -> None:
    """With the reason, as everywhere else."""
    hold = PauseReason(
        signal=Signal.LEVEL_DEPTH, endpoint=None, observed="12", limit="at most 10", since=NOW
    )
    world.hook_events.throttled(hold, True)
    world.hook_events.throttled(hold, False)
    facts = {
        "signal": "level_depth",
        "endpoint": None,
        "observed": "12",
        "limit": "at most 10",
        "since": NOW.isoformat(),
    }
    assert world.told == [
        (HookEvent.THROTTLE, f"waits: {hold.text}", {"began": True, **facts}),
        (HookEvent.THROTTLE, f"no longer waits: {hold.text}", {"began": False, **facts}),
    ]


def test_quarantine_is_told_once_for_several_rows(world: World) -> None:
    """Only what came since the last look, and not what was there at the beginning."""
    world.look(quarantined=3)
    world.look(quarantined=3)
    assert world.told == []
    world.look(quarantined=8)
    world.look(quarantined=8)
    world.look(quarantined=2)
    world.look(quarantined=3)
    now = [{"endpoint": "Sales", "reason": "refused", "rows": 8}]
    first = {"rows": 5, "endpoints": {"Sales": 5}, "now": now}
    assert world.told[0] == (HookEvent.QUARANTINE, "5 rows went into quarantine", first)
    assert [facts["rows"] for _, _, facts in world.told] == [5, 1]


def test_rows_of_others_are_not_spoken_of(world: World) -> None:
    """Another process works on that endpoint, and tells."""
    world.hook_events.polled(progress(endpoint=BILLING))
    world.hook_events.polled(progress(endpoint=BILLING, quarantined=5))
    assert world.told == []


def test_a_daemon_that_has_moved_everything_is_drained(world: World) -> None:
    """Once, when it was so for a while; again when more rows came and went."""
    world.look(handed_over=10)
    world.look(handed_over=20, claimed=10)
    world.look(handed_over=30)
    for _ in range(6):
        world.look(handed_over=30)
    assert world.events == [HookEvent.DRAINED]
    assert world.told[0][2]["endpoints"] == [
        {
            "endpoint": "Sales",
            "handed_over": 30,
            "dispatched": 0,
            "in_flight": 0,
            "quarantined": 0,
            "doubtful": 0,
        }
    ]
    for _ in range(10):
        world.look(handed_over=30)
    assert len(world.told) == 1
    for _ in range(10):
        world.look(handed_over=31)
    assert world.events == [HookEvent.DRAINED] * 2


def test_a_daemon_that_moved_nothing_is_not_drained(world: World) -> None:
    """Or every start of one with nothing to do would be told."""
    for _ in range(20):
        world.look(handed_over=10)
    assert world.told == []


def test_a_row_now_and_then_is_not_drained_each_time(world: World) -> None:
    """While rows keep coming it is never quiet for long enough."""
    for number in range(40):
        world.look(after_s=QUIET_S - 1, handed_over=number)
    assert world.told == []


@pytest.mark.parametrize("what", ["held", "in flight"])
def test_what_is_held_or_in_flight_is_not_drained(world: World, what: str) -> None:
    """It only looks quiet."""
    world.look()
    world.is_idle = what != "held"
    for _ in range(20):
        world.look(handed_over=5, claimed=1 if what == "in flight" else 0)
    assert world.told == []
    world.is_idle = True
    for _ in range(7):
        world.look(handed_over=5)
    assert world.events == [HookEvent.DRAINED]


def test_a_finished_run_tells_what_it_left_aside_and_that_it_is_done(world: World) -> None:
    """In that order, without waiting, and though it moved nothing."""
    world.look()
    world.hook_events.finished(progress(quarantined=2))
    assert world.events == [HookEvent.QUARANTINE, HookEvent.DRAINED]
    world.hook_events.polled(progress(quarantined=1))  # a look that was on its way
    assert len(world.told) == 2


@pytest.mark.parametrize("code", ExitCode)
def test_only_bad_ends_are_failures(world: World, code: ExitCode) -> None:
    """Rows in quarantine were told already."""
    fire_exit(world.fire, code)
    is_bad = code not in (ExitCode.DONE, ExitCode.QUARANTINED)
    assert world.events == ([HookEvent.FAILURE] if is_bad else [])
    if is_bad:
        facts = {"exit_code": int(code), "outcome": code.name.lower(), "error": None}
        assert world.told[0][1:] == (f"migrator ends with exit code {int(code)}", facts)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StoreUnavailable("the store is away"), 4, "the store is away"),
        (ZeroDivisionError("oh"), 1, "ZeroDivisionError: oh"),
    ],
)
def test_an_error_before_the_work_begins_is_a_failure(
    tmp_path: Path, error: Exception, code: int, text: str
) -> None:
    """It is told with its text, and goes on to whoever called."""
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >{tmp_path}/told\n")
    hook.chmod(0o755)
    with pytest.raises(type(error)), hooked(Given(failure=hook)):
        raise error
    found = json.loads((tmp_path / "told").read_text())
    assert (found["facts"]["exit_code"], found["facts"]["error"]) == (code, text)
    assert found["text"] == f"migrator ends with exit code {code}: {text}"


def test_what_was_put_back_is_told_as_the_command_tells_it(world: World) -> None:
    """The document of ``--json``, and which verb."""
    fire_rollback(world.fire, "rollback", {"rows": 3})
    facts = {"verb": "rollback", "rows": 3}
    assert world.told == [(HookEvent.ROLLBACK, "migrator rollback put rows back", facts)]
