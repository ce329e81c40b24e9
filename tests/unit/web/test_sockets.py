"""Tests of ``migrator.web.sockets``, on real ones."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migrator.errors import ConfigError
from migrator.web import sockets
from migrator.web.sockets import tcp_socket, unix_socket


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket, however long the test's name is."""
    with tempfile.TemporaryDirectory(prefix="web-") as folder:
        yield Path(folder) / "control.sock"


def dead_socket(path: Path) -> None:
    """Leave a socket file as a killed process does."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as left:
        left.bind(str(path))
        left.listen()


def test_owner_and_group_may_use_it_and_it_goes_away(path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        with unix_socket(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)
    assert list(path.parent.iterdir()) == []


def test_what_a_dead_process_left_is_replaced(path: Path) -> None:
    """Whoever was killed could not tidy up."""
    dead_socket(path)
    with unix_socket(path), closing(socket.socket(socket.AF_UNIX)) as asker:
        asker.connect(str(path))
    assert not path.exists()


def test_a_living_daemon_keeps_its_socket(path: Path) -> None:
    """The second one is told, and changes nothing."""
    with unix_socket(path):
        before = path.stat().st_ino
        with pytest.raises(ConfigError, match="another process listens"), unix_socket(path):
            pass
        assert path.stat().st_ino == before
    assert not path.exists()


def test_only_our_own_file_is_removed(path: Path) -> None:
    """Somebody may have put another in its place."""
    with unix_socket(path):
        path.unlink()
        dead_socket(path)
    assert path.exists()


def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    """A typing error must not cost anybody a file."""
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"), unix_socket(path):
        pass
    assert path.read_text() == "precious"


def test_a_link_is_not_followed(path: Path) -> None:
    """Nor removed."""
    target = path.with_name("elsewhere")
    dead_socket(target)
    path.symlink_to(target)
    with pytest.raises(ConfigError, match="is no socket"), unix_socket(path):
        pass
    assert path.is_symlink()
    assert target.exists()


@pytest.mark.parametrize(
    ("name", "text"), [("x" * 120, "is too long"), ("nowhere/control.sock", "there is no folder")]
)
def test_a_path_that_cannot_be_is_refused(path: Path, name: str, text: str) -> None:
    """With what is wrong about it."""
    with pytest.raises(ConfigError, match=text), unix_socket(path.parent / name):
        pass


def test_two_that_start_at_once_wait_for_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second would remove what the first just made; nobody waits for ever."""
    monkeypatch.setattr(sockets, "_PATIENCE_S", 0.1)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="is locked"), unix_socket(path):
            pass
    finally:
        os.close(handle)
    with unix_socket(path):
        pass


def test_a_port_is_listened_on() -> None:
    """On that address only; a free one when it does not matter which."""
    with tcp_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))):
            pass
        with (
            pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1 port {port} .*in use"),
            tcp_socket("127.0.0.1", port),
        ):
            pass


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid"])
def test_an_address_of_others_is_refused(host: str) -> None:
    """With the setting that names it."""
    with pytest.raises(ConfigError, match=r"web\.listen"), tcp_socket(host, 0):
        pass
