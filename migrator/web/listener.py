"""The sockets the daemon listens on: a file that only its owner and group may use, and a TCP port.

Rules of this file: no client can connect before the file has its mode; a file that a dead process
left is replaced, one on which a process listens is not; at the end only its own file is removed.
Unless a path is given, systemd's folder for the service goes before the user's own; nothing is
created outside of them, and without either there is no socket. Source: docs/control.md.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from migrator.errors import ConfigError
from migrator.nservicebus.timeouts import EndpointName
from migrator.web.client import peer_of

SOCKET_MODE: Final = 0o660
"""Owner and group may command the daemon; there is no other login."""
_LOCK_MODE: Final = 0o600
_LONGEST_PATH_BYTES: Final = 107
"""What the kernel's address structure takes, unix(7)."""
_BACKLOG: Final = 64
_LOCK_TIMEOUT_S: Final = 5.0
"""How long two daemons that start at the same moment wait for each other."""
_ANSWER_S: Final = 2.0


@contextmanager
def unix_socket(path: Path) -> Iterator[socket.socket]:
    """Listen on *path* with mode 0660; the file is gone afterwards.

    Raises:
        ConfigError: Another process listens there, or the path cannot be used. Nothing was changed.
    """
    _check_path(path)
    try:
        with ExitStack() as ends:
            with _alone_at(path):
                _remove_dead(path)
                listener = ends.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(path))
                ends.callback(_remove_own, path, _identity(path))
                path.chmod(SOCKET_MODE)
                listener.listen(_BACKLOG)
            yield listener
    except OSError as exc:
        raise ConfigError(f"cannot listen on {path}: {exc.strerror or exc}") from exc


@contextmanager
def tcp_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on *port* of the address *host*; port 0: any that is free.

    Raises:
        ConfigError: The port is taken, or the address is not one of this machine.
    """
    try:
        # with its interface, where the name has one: [fe80::1%eth0]
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # without dualstack_ipv6, [::1] means what it says, whatever the system's default is
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as exc:
        raise ConfigError(
            f"cannot listen on {host} port {port} (web.listen): {exc.strerror or exc}"
        ) from exc
    with listener:
        yield listener


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise ConfigError(
            f"web.socket {path} is too long: a socket's path has at most {_LONGEST_PATH_BYTES} "
            "bytes; nothing was started"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"web.socket {path} cannot be created: there is no folder {path.parent}; nothing was "
            "started"
        )


@contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """Keep other daemons from checking and binding *path* at the same time.

    The lock is a file of its own that no other user can open: a folder can be locked by each user
    who may read it. The file stays.
    """
    from tenacity import (  # imported only by a daemon
        RetryError,
        Retrying,
        retry_if_exception_type,
        stop_after_delay,
        wait_fixed,
    )

    file = path.with_name(f"{path.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(file, flags, _LOCK_MODE)
    try:
        if os.fstat(handle).st_uid not in (0, os.geteuid()):
            raise ConfigError(f"{file} belongs to another user: remove it; nothing was started")
        lock = Retrying(
            retry=retry_if_exception_type(BlockingIOError),
            stop=stop_after_delay(_LOCK_TIMEOUT_S),
            wait=wait_fixed(0.05),
        )
        try:
            lock(fcntl.flock, handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except RetryError as exc:
            text = f"{file} is locked by another process; nothing was started"
            raise ConfigError(text) from exc
        yield
    finally:
        os.close(handle)  # and with it the lock


def _remove_dead(path: Path) -> None:
    """Remove what a dead process left at *path*, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"web.socket {path} exists and is not a socket; nothing was changed")
    if answers(path):
        raise ConfigError(
            f"another process listens on web.socket {path}: is a daemon running already? give "
            "each its own; nothing was started"
        )
    path.unlink()


def answers(path: Path, peers: Collection[int] | None = None) -> bool:
    """Return whether a process listens on *path*; one that is too busy to answer does.

    Only users in *peers* count, if they are given.
    """
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(_ANSWER_S)
        try:
            asker.connect(str(path))
        except OSError as exc:
            return exc.errno not in (errno.ECONNREFUSED, errno.ENOENT)
        return peers is None or peer_of(asker) in peers


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _remove_own(path: Path, identity: tuple[int, int]) -> None:
    with suppress(OSError):
        if _identity(path) == identity:
            path.unlink()


RUN: Final = Path("/run")
"""Where systemd makes the folders of its services."""
_SERVICE: Final = "migrator"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FILE: Final = "control.sock"
_PLAIN: Final = frozenset(f"{string.ascii_letters}{string.digits}:_.".encode())


def own_socket(environ: Mapping[str, str]) -> Path | None:
    """Return where a daemon with this environment listens; None: it has no runtime folder.

    The service's folder is systemd's ``RuntimeDirectory=``. In the user's runtime folder it makes
    one with mode 0700. It does not use a runtime folder that belongs to another user, as ``su`` and
    ``sudo`` may pass it on, or that others may write to: they could replace the socket.
    """
    if given := environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0]) / _FILE
    folder = _of_user(environ)
    if folder is None or not _is_ours_alone(folder.parent):
        return None
    with suppress(OSError):  # binding the socket reports what is wrong
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder / _FILE


def listening(environ: Mapping[str, str]) -> Sequence[Path]:
    """Return the sockets at the usual places on which a daemon listens; may be empty.

    A process of a user who is not in ``trusted_peers`` is none: the environment, as ``su`` and
    ``sudo`` may hand it down, named the folder, not the operator.
    """
    return [
        path
        for path in dict.fromkeys(_usual(environ))
        if _is_socket(path) and answers(path, trusted_peers(path))
    ]


def trusted_peers(path: Path) -> Collection[int]:
    """Return whose processes may be the daemon at one of the usual places.

    This user's and root's; below /run also those of whom the folder belongs to, since only root
    gives folders away there.
    """
    trusted = {0, os.geteuid()}
    if path.parent.parent == RUN:
        with suppress(OSError):
            trusted.add(path.parent.lstat().st_uid)
    return trusted


def chosen(found: Sequence[Path], endpoint: EndpointName | None) -> Path | None:
    """Return the one of *found* that is meant; None: none or several are.

    Of several, that of the service ``migrator@…`` which is called like *endpoint*.
    """
    if len(found) == 1:
        return found[0]
    wanted = None if endpoint is None else RUN / f"{_SERVICE}@{escaped(endpoint)}" / _FILE
    return wanted if wanted in found else None


def escaped(name: str) -> str:
    r"""Return *name* as systemd calls an instance: ``Sales-EU`` is ``Sales\x2dEU``.

    Source: systemd.unit(5), "String escaping for inclusion in unit names".
    """
    parts = [chr(byte) if byte in _PLAIN else rf"\x{byte:02x}" for byte in name.encode()]
    parts = ["-" if part == r"\x2f" else part for part in parts]
    if name.startswith("."):
        parts[0] = r"\x2e"
    return "".join(parts)


def _usual(environ: Mapping[str, str]) -> Iterator[Path]:
    if given := environ.get("RUNTIME_DIRECTORY"):
        yield Path(given.split(":")[0]) / _FILE
    yield RUN / _SERVICE / _FILE
    yield from sorted(RUN.glob(f"{_SERVICE}*@*/{_FILE}"))
    if (folder := _of_user(environ)) is not None:
        yield folder / _FILE


def _of_user(environ: Mapping[str, str]) -> Path | None:
    given = Path(environ.get("XDG_RUNTIME_DIR") or ".")
    return given / _SERVICE if given.is_absolute() else None


def _is_ours_alone(folder: Path) -> bool:
    """Return whether only we may write in *folder*, as the XDG base directory rules demand."""
    try:
        found = folder.stat()
    except OSError:
        return False
    is_folder = stat.S_ISDIR(found.st_mode)
    return is_folder and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def _is_socket(path: Path) -> bool:
    with suppress(OSError):  # not readable, or no path at all
        return path.is_socket()
    return False
