"""Tests of ``migrator.cli.control`` and ``status --daemon``, against a served panel."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.app.ledger import open_ledger
from migrator.cli import daemon
from migrator.cli.session import Session
from migrator.config.sources import ledger_place
from migrator.nservicebus.timeouts import EndpointName
from migrator.throttle.reasons import Signal
from migrator.web import listener
from migrator.web.client import DaemonClient
from migrator.web.control import NO_REASON, Adjust, Drain, Pause, Resume, RuntimeSetting, StopNow
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve
from tests.support.panel import SALES, MemoryPanel, hold, some_snapshot
from tests.unit.cli.conftest import Program


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    """Where the daemon of these tests listens; short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="web-") as folder:
        yield Path(folder) / "control.sock"


@pytest.fixture(scope="module")
def shared_panel(path: Path) -> Iterator[MemoryPanel]:
    """A served panel."""
    panel = MemoryPanel()
    with serve(panel, WebPlan(socket=path), Instruments()):
        yield panel


@pytest.fixture
def panel(
    shared_panel: MemoryPanel, path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> MemoryPanel:
    """The same without memories; the program knows where it is."""
    shared_panel.__init__()  # type: ignore[misc]  # all of it begins anew
    monkeypatch.setenv("MIGRATOR_WEB__SOCKET", str(path))
    return shared_panel


@pytest.mark.parametrize(
    ("call", "command", "text"),
    [
        (["pause"], Pause(endpoint=None, reason=NO_REASON), "paused everything"),
        (
            ["pause", "--endpoint", "Sales", "--reason", "index rebuild"],
            Pause(endpoint=SALES, reason="index rebuild"),
            "paused Sales: index rebuild",
        ),
        (["resume", "--endpoint", "Sales"], Resume(endpoint=SALES), "nothing is paused"),
        (["set", "lanes", "2"], Adjust(setting=RuntimeSetting.LANES, value="2"), "is 2"),
        (["stop"], Drain(), "draining"),
        (["stop", "--now"], StopNow(), "draining"),
    ],
)
def test_a_verb_is_a_command(
    program: Program, panel: MemoryPanel, call: list[str], command: object, text: str
) -> None:
    """The daemon gets it, and its answer is shown."""
    assert text in program(*call).out
    ((told, _),) = panel.told
    assert told == command
    document = program(*call, "--json").document
    assert (document["schema"], document["is_done"]) == ("migrator/control/1", True)


def test_who_gave_it_is_told(
    program: Program, panel: MemoryPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was given with sudo; the kernel's word stands beside it."""
    monkeypatch.setenv("SUDO_USER", "alice")
    program("stop")
    monkeypatch.setenv("SUDO_USER", "a\nb")
    program("stop")
    one, other = (who for _, who in panel.told)
    assert one.startswith("alice (")
    assert one.endswith(f"uid {os.getuid()} over the control socket)")
    assert not other.startswith("a")


def test_a_refused_command_ends_with_3(program: Program, panel: MemoryPanel) -> None:
    """With why; the document says so as well. What is no command is not sent."""
    assert "refused: batch_size is many" in program("set", "batch_size", "many", codes=[3]).err
    ended = program("set", "batch_size", "many", "--json", codes=[3])
    assert ended.document["is_done"] is False
    assert "value must be a non-empty text" in program("set", "batch_size", "", codes=[2]).err
    assert "one line" in program("pause", "--reason", "two\nlines", codes=[2]).err
    assert len(panel.told) == 2


def test_an_operator_need_not_read_the_secrets(
    program: Program, panel: MemoryPanel, path: Path
) -> None:
    """Who may open the socket may command, whatever else of the settings is for others."""
    settings = program.folder / "other.toml"
    settings.write_text(f'[web]\nsocket = "{path}"\ntoken_file = "for-the-daemon-only"\n')
    config = ["--config", str(settings)]
    assert "cannot be read" in program(*config, "stop", codes=[2]).err
    program(*config, "stop", "--socket", os.path.relpath(path))
    assert "migrator 1.2.3" in program(*config, "status", "--socket", str(path)).out
    assert len(panel.told) == 1


def test_the_daemon_that_runs_here_is_found(
    program: Program, shared_panel: MemoryPanel, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any setting and any option, and named; one of several has to be."""
    shared_panel.__init__()  # type: ignore[misc]  # all of it begins anew
    monkeypatch.setattr(listener, "RUN", path.with_name("run"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(path.with_name("run")))
    assert "no daemon listens at the usual places" in program("stop", codes=[4]).err
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(path.parent))
    assert f"the daemon at {path}" in program("stop").err
    other = path.with_name("run") / "migrator@Sales" / "control.sock"
    other.parent.mkdir(parents=True)
    with serve(MemoryPanel(), WebPlan(socket=other), Instruments()):
        assert "say which with --socket" in program("stop", codes=[2]).err
        program("pause", "--endpoint", "Sales")
    monkeypatch.setenv("MIGRATOR_WEB__SOCKET", "")
    assert "set it in migrator.toml" in program("stop", codes=[2]).err
    assert len(shared_panel.told) == 1


def test_several_endpoints_are_several_commands(program: Program, panel: MemoryPanel) -> None:
    """The answer is one."""
    names = ("--endpoint", "Sales", "--endpoint", "Billing")
    document = program("pause", *names, "--json").document
    assert document["is_done"]
    assert all(f"paused {name}" in document["text"] for name in ("Sales", "Billing"))
    told = [command for command, _ in panel.told]
    assert told == [
        Pause(endpoint=EndpointName(name), reason=NO_REASON) for name in ("Sales", "Billing")
    ]


def test_no_daemon_is_told(program: Program, path: Path) -> None:
    """Nobody ever listened there, or whoever did is dead."""
    absent = path.with_name("absent")
    for _ in range(2):
        ended = program("stop", "--socket", str(absent), codes=[4])
        assert f"no daemon listens on {absent}" in ended.err
        assert "nothing was sent" in ended.err
        with closing(socket.socket(socket.AF_UNIX)) as dead:
            if not absent.exists():
                dead.bind(str(absent))
    absent.unlink()


@contextmanager
def stranger(path: Path, answer: bytes) -> Iterator[None]:
    """Listen at *path* and give who asks the *answer*."""

    def serve_one() -> None:
        connection, _ = ear.accept()
        with closing(connection):
            asked = b""
            while not asked.endswith(b"}"):  # what is not read would cut the answer off
                asked += connection.recv(65_536)
            connection.sendall(answer)

    with closing(socket.socket(socket.AF_UNIX)) as ear:
        ear.bind(str(path))
        ear.listen()
        thread = threading.Thread(target=serve_one)
        thread.start()
        yield
        thread.join(5)
    path.unlink()


def http(code: int, body: str) -> bytes:
    """Return an answer as a daemon gives it."""
    return f"HTTP/1.1 {code} X\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


ERROR = json.dumps({"schema": "migrator/error/1", "error": "why"})


@pytest.mark.parametrize(
    ("answer", "text", "code"),
    [
        (b"", "may have been carried out", 4),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{", "may have been carried out", 4),
        (b"220 mail ready\r\n", "may have been carried out", 4),
        (http(200, "{}"), "does not answer like", 4),
        (http(503, "busy"), "does not answer like", 4),
        (http(504, ERROR), "says: why", 4),
        (http(400, ERROR), "did not understand", 2),
    ],
    ids=["none", "half", "no HTTP", "another schema", "a proxy", "an error", "an older daemon"],
)
def test_what_is_no_answer_is_told_as_such(
    program: Program, path: Path, answer: bytes, text: str, code: int
) -> None:
    """What became of the command is not claimed to be known."""
    other = path.with_name("other")
    with stranger(other, answer):
        assert text in program("stop", "--socket", str(other), codes=[code]).err


def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever(
    program: Program, panel: MemoryPanel, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    """Whoever asked is told that it may have been carried out."""
    monkeypatch.setattr(daemon, "DaemonClient", lambda path: DaemonClient(path, timeout_s=0.1))
    panel.answers.clear()
    assert "may have been carried out" in program("stop", codes=[4]).err
    panel.answers.set()


# ── status --daemon ─────────────────────────────────────────────────────────────────────────


def test_the_daemon_tells_what_it_does(program: Program, panel: MemoryPanel) -> None:
    """How fast, how long still, and why it waits; no store is asked."""
    panel.shown = some_snapshot(holds=[hold(Signal.PAUSED, SALES), hold(Signal.ALARM)])
    out = program("status", "--daemon").out
    for text in (
        "migrator 1.2.3, app1/1/2/3",
        "Sales has waited since 2026-03-10 09:30:00 UTC: paused: what was seen",
        "everything has waited since 2026-03-10 09:30:00 UTC: broker_alarm",
        "set now: batch_size 1000, cutoff 1m",
        "not known: the management API did not answer",
        "as of 2 s ago",
        "probe, 2026-03-10 09:30:00 UTC: needs attention: levels late, early or lost: 3",
        "missed since the start: sweep 2",
    ):
        assert text in out
    (row,) = [line for line in out.splitlines() if line.startswith("Sales  ")]
    assert row.split() == [*("Sales", "migrate", "5", "000", "50.0", "1m", "40s"), *row.split()[7:]]
    assert row.endswith("paused, broker_alarm")
    assert program("status", "--daemon", "--json").document["schema"] == "migrator/daemon/1"


def test_the_daemon_tells_of_the_endpoints_that_are_named_alone(
    program: Program, panel: MemoryPanel
) -> None:
    """And of what concerns all; one that it does not work on is no empty answer."""
    shown = some_snapshot(holds=[hold(Signal.PAUSED, SALES), hold(Signal.ALARM)])
    (one, *_) = shown.endpoints
    other = replace(one, endpoint=EndpointName("Billing"))
    panel.shown = replace(shown, endpoints=[one, other])
    names = ("--endpoint", "Billing")
    out = program("status", "--daemon", *names).out
    assert [line.split()[0] for line in out.splitlines() if "migrate" in line] == ["Billing"]
    assert "Sales has waited" not in out
    assert "everything has waited since" in out
    found = program("status", "--daemon", *names, "--json").document
    assert [each["endpoint"] for each in found["working_on"]] == ["Billing"]
    assert {each["endpoint"] for each in found["ledger"]["endpoints"]} <= {"Billing"}
    assert (
        "has no endpoint 'Sale'"
        in program("status", "--daemon", "--endpoint", "Sale", codes=[2]).err
    )


# ── status, of a daemon that nobody named ───────────────────────────────────────────────────────


def test_a_daemon_of_the_same_ledger_is_asked_first(program: Program, panel: MemoryPanel) -> None:
    """The document has the same fields as from the ledger; both ways say who told it."""
    program("db", "upgrade")
    from_ledger = program("status", "--json").document
    assert from_ledger["told_by"] == "ledger"
    assert program("status").out.splitlines()[-1].startswith("reported by the ledger, ")
    with open_ledger(Session().settings(), must_exist=False) as ledger:
        panel.ledger_place = ledger.place
    from_daemon = program("status", "--json").document
    assert (from_daemon["schema"], from_daemon["told_by"]) == ("migrator/status/1", "daemon")
    assert [*from_daemon] == [*from_ledger]
    out = program("status").out
    assert "doubtful batch" in out
    assert out.splitlines()[-1] == (
        "reported by the daemon, from the ledger, 2026-03-10 09:30:00 UTC"
    )


def test_a_daemon_that_cannot_read_the_ledger_is_not_believed(
    program: Program, panel: MemoryPanel
) -> None:
    """Who asks finds out alone, and says what is wrong."""
    with open_ledger(Session().settings(), must_exist=False) as ledger:
        panel.ledger_place = ledger.place
    panel.trouble = "the database is gone"
    assert "migrator db upgrade" in program("status", codes=[3]).err


@pytest.mark.parametrize(
    "other",
    [
        {("store", "url"): "postgresql://host/other"},
        {("store", "url"): "postgresql://host/db", ("store", "ledger_schema"): "other"},
        {("store", "url"): "postgresql://else@host/db"},
        {("store", "url"): "https://host", ("store", "kind"): "ravendb"},
        {},
    ],
)
def test_another_ledger_has_another_place(other: dict[tuple[str, ...], object]) -> None:
    """Unless only a password differs; defaults count as if they were given."""
    given: dict[tuple[str, ...], object] = {("store", "url"): "postgresql://host/db"}
    assert ledger_place(given) != ledger_place(other)
    same = {**given, ("store", "kind"): "sql", ("store", "ledger_schema"): "migrator"}
    assert ledger_place(given) == ledger_place(same)
    one, two = ({**given, ("store", "url"): f"postgresql://me:{n}@host/db"} for n in (1, 2))
    assert ledger_place(one) == ledger_place(two)
