"""Tests of ``migrator.web.listener``, on real sockets."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from migrator.errors import ConfigError, DaemonUnavailable
from migrator.nservicebus.timeouts import EndpointName
from migrator.web import listener
from migrator.web.client import DaemonClient
from migrator.web.listener import tcp_socket, unix_socket


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


def refuse(path: Path, text: str) -> None:
    """Expect that nobody can listen on *path*, and to be told so."""
    with pytest.raises(ConfigError, match=text), unix_socket(path):
        pass


def test_owner_and_group_may_use_it_and_it_goes_away(path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        with unix_socket(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)
    assert [each.name for each in path.parent.iterdir()] == ["control.sock.lock"]


def test_what_a_dead_process_left_is_replaced(path: Path) -> None:
    """A living daemon keeps its socket; what somebody put in the place of ours stays."""
    dead_socket(path)
    with unix_socket(path), closing(socket.socket(socket.AF_UNIX)) as asker:
        asker.connect(str(path))
        before = path.stat().st_ino
        refuse(path, "another process listens")
        assert path.stat().st_ino == before
    assert not path.exists()
    with unix_socket(path):
        path.unlink()
        dead_socket(path)
    assert path.exists()


def test_what_is_no_socket_is_left_alone(path: Path) -> None:
    """A typing error must not cost anybody a file; nor is a link followed, or removed."""
    path.write_text("precious")
    refuse(path, "is not a socket")
    assert path.read_text() == "precious"
    link, target = path.with_name("link"), path.with_name("elsewhere")
    dead_socket(target)
    link.symlink_to(target)
    refuse(link, "is not a socket")
    assert link.is_symlink()
    assert target.exists()
    refuse(path.with_name("x" * 120), "is too long")
    refuse(path.parent / "nowhere" / "control.sock", "there is no folder")


def test_two_that_start_at_once_wait_for_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second would remove what the first just made; nobody waits for ever."""
    monkeypatch.setattr(listener, "_LOCK_TIMEOUT_S", 0.1)
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="is locked"), unix_socket(path):
            pass
    finally:
        os.close(handle)
    with unix_socket(path):
        pass


OTHER = 12345
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@contextmanager
def of_another_user(act: Callable[[], object]) -> Iterator[None]:
    """Have a process of another user do *act*, and live until the end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            kept = act()
            os.write(writing, b"1" if kept is not None else b"0")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def lock_all(folder: Path) -> Callable[[], object]:
    """Lock what can be opened there, and the folder."""

    def act() -> object:
        kept = []
        for each in (folder, *folder.iterdir()):
            with suppress(PermissionError):
                kept.append(os.open(each, os.O_RDONLY))
                fcntl.flock(kept[-1], fcntl.LOCK_EX)
        return kept

    return act


@by_root
def test_nobody_else_keeps_a_daemon_from_starting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may look into the folder can lock it, but not the file that is locked."""
    monkeypatch.setattr(listener, "_LOCK_TIMEOUT_S", 0.3)
    path.parent.chmod(0o755)
    with unix_socket(path):
        pass
    with of_another_user(lock_all(path.parent)), unix_socket(path):
        assert stat.S_IMODE(Path(f"{path}.lock").stat().st_mode) == 0o600
    os.chown(f"{path}.lock", OTHER, OTHER)
    refuse(path, r"control\.sock\.lock belongs to another user: remove it")


def listen(path: Path) -> Callable[[], object]:
    """Listen there."""

    def act() -> object:
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(path))
        made.listen()
        path.chmod(0o666)
        return made

    return act


@by_root
def test_a_socket_of_another_user_is_no_daemon(run: Path) -> None:
    """Only that of this user, of root, or of whom systemd gave a folder below /run."""
    theirs = run / "user" / "migrator"
    theirs.mkdir(parents=True)
    run.chmod(0o755)
    os.chown(theirs, OTHER, OTHER)
    environ = {"XDG_RUNTIME_DIR": str(run / "user")}
    path = theirs / "control.sock"
    with of_another_user(listen(path)):
        assert list(listener.listening(environ)) == []
        assert list(listener.listening({"RUNTIME_DIRECTORY": str(theirs)})) == []
        with pytest.raises(DaemonUnavailable, match=f"of user {OTHER}.*nothing was sent"):
            DaemonClient(path, peers=listener.trusted_peers(path)).status()
    path.unlink()
    service = run / "migrator"
    service.mkdir()
    os.chown(service, OTHER, OTHER)
    with of_another_user(listen(service / "control.sock")):
        assert list(listener.listening(environ)) == [service / "control.sock"]
    (service / "control.sock").unlink()
    os.chown(service, 0, 0)
    service.chmod(0o777)
    with of_another_user(listen(service / "control.sock")):
        assert list(listener.listening(environ)) == []


def test_a_port_is_listened_on() -> None:
    """On that address only; one that is taken, or of others, is refused by its setting."""
    with tcp_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))):
            pass
        for host, taken, text in (
            ("127.0.0.1", port, rf"cannot listen on 127.0.0.1 port {port} .*in use"),
            ("192.0.2.7", 0, r"web\.listen"),
            ("no-such-host.invalid", 0, r"web\.listen"),
        ):
            with pytest.raises(ConfigError, match=text), tcp_socket(host, taken):
                pass


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In place of ``/run``; short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        monkeypatch.setattr(listener, "RUN", Path(folder))
        yield Path(folder)


def test_the_folder_of_the_service_goes_first(run: Path) -> None:
    """Then that of the user, in a folder of ours that is for nobody else."""
    environ = {"RUNTIME_DIRECTORY": "/run/migrator:/run/other", "XDG_RUNTIME_DIR": str(run)}
    assert listener.own_socket(environ) == Path("/run/migrator/control.sock")
    del environ["RUNTIME_DIRECTORY"]
    assert listener.own_socket(environ) == run / "migrator" / "control.sock"
    assert (run / "migrator").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "environ", [{}, {"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": "run"}, {"XDG_RUNTIME_DIR": "/no"}]
)
def test_without_a_folder_there_is_no_socket(environ: dict[str, str]) -> None:
    """Nothing is made where nothing was."""
    assert listener.own_socket(environ) is None


def test_an_address_of_one_interface_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link's own address is no address without its interface."""
    given = ("fe80::1", 9464, 0, 7)
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", given)]
    bound: list[object] = []

    def bind(address: object, **_: object) -> socket.socket:
        bound.append(address)
        return socket.socket()

    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_kwargs: found)
    monkeypatch.setattr("socket.create_server", bind)
    with tcp_socket("fe80::1%eth0", 9464):
        assert bound == [given]


@pytest.mark.parametrize(("mode", "owner"), [(0o770, 0), (0o707, 0), (0o700, 1)])
def test_a_folder_that_is_not_ours_alone_is_left_alone(
    run: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int
) -> None:
    """Others could put a link where the socket is to be; root by sudo has the user's folder."""
    run.chmod(mode)
    monkeypatch.setattr("os.geteuid", lambda: run.stat().st_uid + owner)
    assert listener.own_socket({"XDG_RUNTIME_DIR": str(run)}) is None
    assert not list(run.iterdir())


def test_those_that_listen_are_found_and_the_instance_is_preferred(run: Path) -> None:
    """A dead one's socket is none; of several, only an endpoint says which.

    A copy of the template under another name, for a second process, is found too.
    """
    environ = {"XDG_RUNTIME_DIR": str(run / "user")}
    assert list(listener.listening(environ)) == []
    assert list(listener.listening({"XDG_RUNTIME_DIR": f"/{'x' * 300}"})) == []
    sales, shop = (run / f"migrator@{name}" / "control.sock" for name in (r"My\x2dSales", "Shop"))
    dead = run / "migrator" / "control.sock"
    for path in (sales, shop, dead):
        path.parent.mkdir()
    with unix_socket(dead):
        dead.rename(dead.with_name("kept"))
    dead.with_name("kept").rename(dead)
    with ExitStack() as ends:
        ends.enter_context(unix_socket(sales))
        assert listener.chosen(listener.listening(environ), None) == sales
        ends.enter_context(unix_socket(shop))
        found = listener.listening(environ)
        assert list(found) == [sales, shop]
        second = run / r"migrator-2@My\x2dSales" / "control.sock"
        second.parent.mkdir()
        ends.enter_context(unix_socket(second))
        found = listener.listening(environ)
        assert set(found) == {sales, shop, second}
        assert listener.chosen(found, None) is None
        assert listener.chosen(found, EndpointName("Billing")) is None
        assert listener.chosen(found, EndpointName("My-Sales")) == sales


@pytest.mark.parametrize("name", ["Sales", "My-Sales", "A.B_c:1", ".hidden", "a/b", "Größe", "x y"])
def test_instances_are_called_as_systemd_calls_them(name: str) -> None:
    """By its own tool, where it is installed."""
    tool = shutil.which("systemd-escape")
    if tool is None:
        pytest.skip("systemd-escape is not installed (Debian package systemd)")
    done = subprocess.run([tool, name], capture_output=True, text=True, check=True)
    assert listener.escaped(name) == done.stdout.strip()
