"""Tests of ``migrator.service.hooks``, with real programs."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from migrator.config import Hooks as Given
from migrator.errors import ConfigError, ExitCode, StoreUnavailable
from migrator.ledger.report import EndpointProgress, Progress, QuarantineCount
from migrator.nservicebus.timeouts import EndpointName
from migrator.service import hooks as module
from migrator.service.hooks import HookEvent, HookEvents, Hooks, fire_exit, hooked
from migrator.status.finished import EndpointEnd
from migrator.status.remaining import finished_text
from migrator.throttle.reasons import PauseReason, Signal
from tests.support.panel import some_remaining
from tests.unit.service.conftest import Lines, WaitFor

Write = Callable[[str], Path]
START, THROTTLE, FINISHED, FAILURE = (
    HookEvent.START,
    HookEvent.THROTTLE,
    HookEvent.FINISHED,
    HookEvent.FAILURE,
)
SALES, BILLING = EndpointName("Sales"), EndpointName("Billing")
OTHER = 12345
NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a shell program whose working folder is the test's own."""

    def program(text: str) -> Path:
        path = tmp_path / f"hook-{len(list(tmp_path.iterdir()))}"
        path.write_text(
            f'#!/bin/sh\ncd "$(dirname "$(readlink -f "$0")")" || exit 99\n{text}\n',
            encoding="utf-8",
        )
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


def given(path: Path, *events: HookEvent, timeout_s: float = 20) -> Given:
    """Return settings that run one program at every event, or at those named."""
    programs = {str(event): path for event in events or HookEvent}
    return Given.model_validate(programs | {"timeout": timedelta(seconds=timeout_s)})


def one(lines: Lines, action: str) -> dict[str, Any]:
    """Return the only line with *action*."""
    (line,) = lines(action)
    return vars(line)


def is_running(pid_file: Path) -> bool:
    """Return whether the process that wrote its number into a file still runs."""
    try:
        process = psutil.Process(int(pid_file.read_text()))
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# ── what a program is told ──────────────────────────────────────────────────────────────────────


def test_a_program_reads_the_event_and_gets_nothing_else_of_ours(
    write: Write, tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of JSON, PATH, LANG and the event; no setting, no secret, no open file."""
    monkeypatch.setenv("LANG", "de_AT.UTF-8")
    monkeypatch.setenv("MIGRATOR_STORE__URL", "postgresql://nsb:secret@db/x")
    path = write("cat >told; env >variables; ls -l /proc/$$/fd >files")
    with hooked(given(path)) as hooks:
        text = "two\nlines\0 and half a character: \ud83d"
        hooks.fire(THROTTLE, text, {"began": True, "endpoint": None})
    found = json.loads((tmp_path / "told").read_text())
    assert datetime.fromisoformat(found["at"]).utcoffset() == timedelta(0)
    assert (found["schema"], found["event"], found["text"]) == ("migrator/hook/1", "throttle", text)
    assert (found["facts"], set(found)) == (
        {"began": True, "endpoint": None},
        {"schema", "event", "at", "text", "owner", "version", "facts"},
    )
    got = dict(line.split("=", 1) for line in (tmp_path / "variables").read_text().splitlines())
    assert {key: got[key] for key in got if key not in ("PWD", "OLDPWD", "_", "SHLVL")} == {
        "PATH": os.environ["PATH"],
        "LANG": "de_AT.UTF-8",
        "MIGRATOR_EVENT": "throttle",
        "MIGRATOR_EVENT_TEXT": r"two lines\x00 and half a character: \ud83d",
    }
    assert got["OLDPWD"] == "/"
    assert "socket:" not in (tmp_path / "files").read_text()
    assert (one(lines, "hook_ran")["hook"], one(lines, "hook_ran")["program"]) == (
        "throttle",
        str(path),
    )


def test_passwords_are_masked_and_long_texts_cut(write: Write, tmp_path: Path) -> None:
    """In the text and deep in the facts; between words, so that no half of a password is left."""
    error = "no answer from amqp://nsb:hunter2@broker/"
    long = "x" * 975 + " amqp://nsb:hunter2@broker/ is down"
    with hooked(given(write('cat >told; echo "$MIGRATOR_EVENT_TEXT" >text'))) as hooks:
        facts = {"why": [{"long": long}], "endless": "x" * 10**6, "set": {ValueError(error)}}
        hooks.fire(FAILURE, f"{error} {long}", facts)
    found, text = json.loads((tmp_path / "told").read_text()), (tmp_path / "text").read_text()
    assert found["text"] == text.rstrip("\n") == "no answer from amqp://nsb:***@broker/ …"
    shown = "{ValueError('no answer from amqp://nsb:***@broker/')}"
    assert found["facts"] == {"why": [{"long": "x" * 975 + " …"}], "endless": "…", "set": shown}
    assert "hunter2" not in text + str(found)


def test_events_are_told_one_by_one_in_their_order(write: Write, tmp_path: Path) -> None:
    """No program is started before the one before it has ended."""
    path = write('echo "begin $MIGRATOR_EVENT_TEXT" >>log; sleep 0.05; echo "end" >>log')
    with hooked(given(path, THROTTLE, FINISHED)) as hooks:
        for number in range(3):
            hooks.fire(FINISHED, str(number), {})
        hooks.fire(START, "has no program", {})
    expected = [line for number in range(3) for line in (f"begin {number}", "end")]
    assert (tmp_path / "log").read_text().splitlines() == expected


# ── what programs can do wrong ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("echo $$ >leader; sleep 600 & echo $! >child; wait", -15),
        (
            "trap '' TERM; echo $$ >leader; sleep 600 & echo $! >child; while sleep 1; do :; done",
            -9,
        ),
        ("echo $$ >leader; (trap '' TERM HUP; exec sleep 600) & echo $! >child", 0),
    ],
    ids=["it hangs", "it hangs and ignores SIGTERM", "it leaves somebody behind"],
)
def test_a_program_ends_in_time_with_everything_it_started(
    write: Write, tmp_path: Path, lines: Lines, wait_for: WaitFor, text: str, status: int
) -> None:
    """It has its time first; the next event is told as if nothing had been."""
    programs = {"start": write(text), "finished": write("echo ran >other")}
    with hooked(Given.model_validate(programs | {"timeout": timedelta(seconds=0.5)})) as hooks:
        hooks.fire(START, "begun", {})
        wait_for(lambda: bool(lines("hook_timed_out") if status else lines("hook_ran")))
        hooks._timeout_s = 30.0
        hooks.fire(FINISHED, "done", {})
        wait_for(lambda: (tmp_path / "other").exists())
    wait_for(lambda: not is_running(tmp_path / "leader"))
    wait_for(lambda: not is_running(tmp_path / "child"))
    found = vars(lines("hook_timed_out" if status else "hook_ran")[0])
    assert (found["status"], found["seconds"] < 20) == (status, True)
    assert not status or found["seconds"] >= 0.5


@pytest.mark.parametrize(
    ("text", "action", "said"),
    [
        ("echo to stdout; echo to stderr >&2; exit 3", "hook_failed", "to stdout\nto stderr\n"),
        ("head -c 2000000 /dev/zero; echo; echo the end", "hook_ran", "\nthe end\n"),
        ("exec yes", "hook_timed_out", "\ny\n"),
    ],
    ids=["it fails", "it writes megabytes", "it writes without end"],
)
def test_the_end_of_what_a_program_writes_is_kept(
    write: Write, lines: Lines, caplog: pytest.LogCaptureFixture, text: str, action: str, said: str
) -> None:
    """It costs us little, and whether it reads what it is told is its own business."""
    timeout_s, before_s = (2 if action == "hook_timed_out" else 20), time.process_time()
    with (
        caplog.at_level(logging.DEBUG),
        hooked(given(write(text), timeout_s=timeout_s)) as hooks,
    ):
        hooks.fire(FINISHED, "done", {"much": list(range(100_000))})
    assert one(lines, action)["status"] == {"hook_failed": 3, "hook_ran": 0}.get(action, -15)
    output = one(lines, "hook_said")["output"]
    assert (output.endswith(said), len(output) <= 4096) == (True, True)
    # read as fast as it is written, the endless one would cost all of its time
    assert time.process_time() - before_s < 0.4


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
    tmp_path: Path, lines: Lines, text: str | None, mode: int, why: str
) -> None:
    """At the event, with the reason; what is plain to see is told at the start already."""
    path = tmp_path / "hook"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with hooked(given(path, FINISHED)) as hooks:
        assert bool(lines("hook_failed")) is (mode != 0o755)
        hooks.fire(FINISHED, "done", {})
    last = vars(lines("hook_failed")[-1])
    assert why in last["error"]
    assert (last["hook"], last["program"]) == ("finished", str(path))


# ── nobody waits, and the end of the process ────────────────────────────────────────────────────


def test_to_fire_takes_next_to_no_time(
    write: Write, lines: Lines, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a program hangs, and when the queue is full: then events are dropped, and told."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.2)
    hooks = Hooks(given(write("exec sleep 600"), timeout_s=60))
    hooks.start()
    hooks.fire(THROTTLE, "the first", {})
    wait_for(hooks._waiting.empty)
    took_s: list[float] = []
    for number in range(module._MOST + 50):
        before_s = time.perf_counter()
        hooks.fire(THROTTLE, str(number), {})
        took_s.append(time.perf_counter() - before_s)
    assert median(took_s) < 0.005
    assert [vars(line)["count"] for line in lines("hook_dropped")] == [*range(1, 51)]
    assert vars(lines("hook_dropped")[-1])["text"] == str(module._MOST + 49)
    hooks.end()
    assert vars(lines("hook_dropped")[-1])["count"] == module._MOST + 50


def test_the_last_events_get_their_time_though_another_program_hangs(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines, wait_for: WaitFor
) -> None:
    """What is of the moment is given up soon; who asked to be told of the end is."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.2)
    hanging = write("echo here >hanging; exec sleep 600")
    last = write("sleep 0.5; echo told >last")
    programs = {"throttle": hanging, "failure": last, "timeout": timedelta(seconds=60)}
    with hooked(Given.model_validate(programs)) as hooks:
        for _ in range(3):
            hooks.fire(THROTTLE, "held", {})
        hooks.fire(FAILURE, "exit code 4", {})
        wait_for((tmp_path / "hanging").exists)
        before_s = time.monotonic()
    assert 0.7 <= time.monotonic() - before_s < 50
    assert (tmp_path / "last").read_text() == "told\n"
    assert len(lines("hook_timed_out")) == 1
    assert [vars(line)["why"] for line in lines("hook_dropped")] == ["the end"] * 2


def test_the_end_comes_though_the_last_program_hangs(
    write: Write, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """All of them together have as long as one ever has."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.1)
    before_s = time.monotonic()
    with hooked(given(write("exec sleep 600"), timeout_s=0.4)) as hooks:
        for text in ("one", "two", "three"):
            hooks.fire(FAILURE, text, {})
    assert time.monotonic() - before_s < 20
    hooks.fire(FAILURE, "four", {})
    late, dropped = len(lines("hook_timed_out")), lines("hook_dropped")
    assert late + len(dropped) == 4
    assert len(dropped) >= 2  # of the first three, one had no time left
    assert vars(dropped[-1])["text"] == "four"


# ── what a daemon fires ─────────────────────────────────────────────────────────────────────────


class World:
    """What hook events are made of, and what was fired."""

    def __init__(self) -> None:
        self.told: list[tuple[HookEvent, str, Mapping[str, object]]] = []
        self.events = HookEvents(self.fire, [SALES])

    def fire(self, event: HookEvent, text: str, facts: Mapping[str, object]) -> None:
        json.dumps(facts)  # it must be possible
        self.told.append((event, text, facts))

    def look(self, times: int = 1, **rows: int) -> list[HookEvent]:
        """Have the ledger of ``Sales`` be read; return what was fired so far."""
        for _ in range(times):
            self.events.polled(progress(SALES, **rows))
        return [event for event, _, _ in self.told]


@pytest.fixture
def world() -> World:
    """A world in which nothing has happened."""
    return World()


def progress(endpoint: EndpointName, **rows: int) -> Progress:
    """Return a ledger with so many rows in each state."""
    aside = rows.get("quarantined", 0)
    count = QuarantineCount(endpoint=endpoint, reason="refused", rows=aside)
    return Progress(
        taken_at=NOW,
        endpoints=[EndpointProgress(endpoint=endpoint, rows=rows)],
        quarantine=[count] if aside else [],
        doubtful=(),
        oldest_open_age=None,
        lanes=(),
    )


@pytest.mark.parametrize(("began", "words"), [(True, "waits"), (False, "no longer waits")])
def test_a_reason_to_wait_is_told_when_it_comes_and_goes(
    world: World, began: bool, words: str
) -> None:
    """With all that is known of it."""
    reason = PauseReason(
        signal=Signal.LEVEL_DEPTH, endpoint=SALES, observed="12", limit="at most 10", since=NOW
    )
    world.events.throttled(reason, began)
    facts = {"began": began, **asdict(reason), "since": NOW.isoformat()}
    assert world.told == [(THROTTLE, f"{words}: {reason.text}", facts)]


def test_quarantine_is_told_once_for_several_rows(world: World) -> None:
    """Only ours, only what came since the last look, and not what was there at the beginning."""
    assert world.look(2, quarantined=3) == []
    world.look(2, quarantined=8)
    world.look(quarantined=2)
    world.look(quarantined=3)
    now = [{"endpoint": "Sales", "reason": "refused", "rows": 8}]
    first = {"rows": 5, "endpoints": {"Sales": 5}, "now": now}
    assert world.told[0] == (HookEvent.QUARANTINE, "5 rows went into quarantine", first)
    assert [facts["rows"] for _, _, facts in world.told] == [5, 1]
    world.events.polled(progress(BILLING, quarantined=5))
    assert len(world.told) == 2


def test_the_end_of_the_work_is_told_in_a_sentence(world: World) -> None:
    """For each endpoint, those that were only dispatched as well."""
    left = some_remaining(0, left=2, overdue=2)
    moved, sent = (
        EndpointProgress(endpoint=name, rows={state: 30})
        for name, state in ((SALES, "handed_over"), (BILLING, "dispatched"))
    )
    world.events.finished(
        [
            EndpointEnd(endpoint=SALES, progress=moved, remaining=left, is_finished=True),
            EndpointEnd(endpoint=BILLING, progress=sent, remaining=None, is_finished=False),
        ]
    )
    ((event, text, facts),) = world.told
    assert event is FINISHED
    assert text == f"Sales: {finished_text(moved, left)} Billing: 0 moved, 30 sent when due."
    one, other = json.loads(json.dumps(facts))["endpoints"]
    assert (one["endpoint"], other["endpoint"]) == ("Sales", "Billing")
    assert (one["overdue"], one["handed_over"], other["dispatched"]) == (2, 30, 30)


@pytest.mark.parametrize("code", ExitCode)
def test_only_bad_ends_are_failures(world: World, code: ExitCode) -> None:
    """Rows in quarantine were told already."""
    fire_exit(world.fire, code)
    facts = {"exit_code": int(code), "outcome": code.name.lower(), "error": None}
    is_fine = code in (ExitCode.DONE, ExitCode.QUARANTINED)
    told = (FAILURE, f"migrator ends with exit code {int(code)}", facts)
    assert world.told == ([] if is_fine else [told])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StoreUnavailable("the store is away"), 4, "the store is away"),
        (ZeroDivisionError("oh"), 1, "ZeroDivisionError: oh"),
    ],
)
def test_an_error_before_the_work_begins_is_a_failure(
    write: Write, tmp_path: Path, error: Exception, code: int, text: str
) -> None:
    """It is told with its text, and goes on to whoever called."""
    with pytest.raises(type(error)), hooked(given(write("cat >told"), FAILURE)):
        raise error
    found = json.loads((tmp_path / "told").read_text())
    assert (found["facts"]["exit_code"], found["facts"]["error"]) == (code, text)
    assert found["text"] == f"migrator ends with exit code {code}: {text}"


def test_a_program_that_others_may_write_is_not_run(write: Write) -> None:
    """Nothing is: whoever can change it would act as the daemon's user."""
    program = write("touch ran")
    program.chmod(0o757)
    with (
        pytest.raises(
            ConfigError, match=r"hooks\.start: .* cannot be used: other users may write it"
        ),
        hooked(given(program, START)) as hooks,
    ):
        hooks.fire(START, "", {})
    assert not (program.parent / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("way", ["open folder", "their folder", "their link"])
def test_a_program_that_others_may_exchange_is_not_run(
    write: Write, tmp_path: Path, way: str
) -> None:
    """Every folder and link on the way counts, not the file alone."""
    program = write("touch ran")
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    link = folder / "link"
    link.symlink_to(program)
    if way == "open folder":
        folder.chmod(0o777)
    elif way == "their folder":
        os.chown(folder, OTHER, OTHER)
    else:
        folder.chmod(0o1777)
        os.lchown(link, OTHER, OTHER)
    with (
        pytest.raises(ConfigError, match=r"hooks\.start: .*link cannot be used: "),
        hooked(given(link, START)) as hooks,
    ):
        hooks.fire(START, "", {})
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_program_is_looked_at_again_before_each_run(
    write: Write, tmp_path: Path, lines: Lines, wait_for: WaitFor
) -> None:
    """Whoever gets hold of a folder while the daemon runs has nothing run."""
    above = tmp_path / "above"
    program = above / "folder" / "hook"
    program.parent.mkdir(parents=True)
    write("date >>runs").rename(program)
    with hooked(given(program, START)) as hooks:
        hooks.fire(START, "", {})
        wait_for(lambda: len(lines("hook_ran")) == 1)
        os.chown(above, OTHER, OTHER)
        hooks.fire(START, "", {})
        wait_for(lambda: len(lines("hook_failed")) == 1)
        os.chown(above, 0, 0)
        hooks.fire(START, "", {})
        wait_for(lambda: len(lines("hook_ran")) == 2)
    assert one(lines, "hook_failed")["error"] == f"the folder {above} belongs to another user"
    assert len((program.parent / "runs").read_text().splitlines()) == 2


def test_what_was_looked_at_is_what_is_run(write: Write, tmp_path: Path) -> None:
    """By its handle, scripts as well: their $0 leads to the file, and is no name that moves."""
    program = write('echo "$0" >name; readlink -f "$0" >file')
    with hooked(given(program, FINISHED)) as hooks:
        hooks.fire(FINISHED, "", {})
    assert (tmp_path / "name").read_text().startswith("/proc/self/fd/")
    assert (tmp_path / "file").read_text() == f"{program}\n"
