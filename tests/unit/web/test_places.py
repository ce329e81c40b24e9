"""Tests of ``migrator.web.places``: where a daemon listens, and is found, when nobody said."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.nservicebus.timeouts import EndpointName
from migrator.web import places
from migrator.web.sockets import unix_socket


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In place of ``/run``; short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        monkeypatch.setattr(places, "RUN", Path(folder))
        yield Path(folder)


def test_the_folder_of_the_service_goes_first(run: Path) -> None:
    """Then that of the user, in a folder of ours that is for nobody else."""
    environ = {"RUNTIME_DIRECTORY": "/run/migrator:/run/other", "XDG_RUNTIME_DIR": str(run)}
    assert places.own_socket(environ) == Path("/run/migrator/control.sock")
    del environ["RUNTIME_DIRECTORY"]
    assert places.own_socket(environ) == run / "migrator" / "control.sock"
    assert (run / "migrator").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "environ", [{}, {"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": "run"}, {"XDG_RUNTIME_DIR": "/no"}]
)
def test_without_a_folder_there_is_no_socket(environ: dict[str, str]) -> None:
    """Nothing is made where nothing was."""
    assert places.own_socket(environ) is None


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_in_which_others_write_is_left_alone(run: Path, mode: int) -> None:
    """They could put a link where the socket is to be."""
    run.chmod(mode)
    assert places.own_socket({"XDG_RUNTIME_DIR": str(run)}) is None
    assert not list(run.iterdir())


def test_a_folder_of_somebody_else_is_left_alone(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root that came by sudo has the user's folder in its environment."""
    owner = run.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert places.own_socket({"XDG_RUNTIME_DIR": str(run)}) is None
    assert not list(run.iterdir())


def test_those_that_listen_are_found_and_the_instance_is_preferred(run: Path) -> None:
    """A dead one's socket is none; of several, only an endpoint says which."""
    environ = {"XDG_RUNTIME_DIR": str(run / "user")}
    assert list(places.listening(environ)) == []
    sales, shop = (run / f"migrator@{name}" / "control.sock" for name in (r"My\x2dSales", "Shop"))
    dead = run / "migrator" / "control.sock"
    for path in (sales, shop, dead):
        path.parent.mkdir()
    with unix_socket(dead):
        dead.rename(dead.with_name("kept"))
    dead.with_name("kept").rename(dead)
    with ExitStack() as ends:
        ends.enter_context(unix_socket(sales))
        assert places.chosen(places.listening(environ), None) == sales
        ends.enter_context(unix_socket(shop))
        found = places.listening(environ)
        assert list(found) == [sales, shop]
        assert places.chosen(found, None) is None
        assert places.chosen(found, EndpointName("Billing")) is None
        assert places.chosen(found, EndpointName("My-Sales")) == sales


@pytest.mark.parametrize("name", ["Sales", "My-Sales", "A.B_c:1", ".hidden", "a/b", "Größe", "x y"])
def test_instances_are_called_as_systemd_calls_them(name: str) -> None:
    """By its own tool, where it is installed."""
    tool = shutil.which("systemd-escape")
    if tool is None:
        pytest.skip("systemd-escape is not installed (Debian package systemd)")
    done = subprocess.run([tool, name], capture_output=True, text=True, check=True)
    assert places.escaped(name) == done.stdout.strip()
