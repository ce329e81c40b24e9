"""The sockets we listen on: a file that only its owner and group may use, and a TCP port.

Rules of this file: nobody can connect before the file has its mode; a file that a dead process
left is replaced, one on which somebody answers is not; at the end only our own file is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from migrator.errors import ConfigError

SOCKET_MODE: Final = 0o660
"""Owner and group may command the daemon; that is all there is to log in with."""
_LONGEST_PATH_BYTES: Final = 107
"""What the kernel's address structure takes, unix(7)."""
_BACKLOG: Final = 64
_PATIENCE_S: Final = 5.0
"""How long two that start at the same moment wait for each other."""
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
            with _alone_in(path.parent):
                _remove_dead(path)
                listener = ends.enter_context(closing(_bound(path)))
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
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise _cannot_listen(host, port, exc) from exc
    with closing(listener):
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # [::1] is to mean what it says, whatever the system's default is
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as exc:
            raise _cannot_listen(host, port, exc) from exc
        yield listener


def _cannot_listen(host: str, port: int, exc: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {host} port {port} (web.listen): {exc.strerror or exc}")


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise ConfigError(
            f"web.socket {path} is too long: a socket's path has at most {_LONGEST_PATH_BYTES} "
            "bytes; nothing was started"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"web.socket {path} cannot be made: there is no folder {path.parent}; nothing was "
            "started"
        )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep others of us from looking and binding in *folder* at the same time."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not _locked(handle):
            if time.monotonic() > deadline_s:
                raise ConfigError(f"{folder} is locked by another process; nothing was started")
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)  # and with it the lock


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_dead(path: Path) -> None:
    """Remove what a dead process left at *path*, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"web.socket {path} exists and is no socket; nothing was changed")
    if answers(path):
        raise ConfigError(
            f"another process listens on web.socket {path}: is a daemon running already? give "
            "each its own; nothing was started"
        )
    path.unlink()


def answers(path: Path) -> bool:
    """Return whether anybody listens on *path*; whoever is too busy to answer does."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as asker:
        asker.settimeout(_ANSWER_S)
        try:
            asker.connect(str(path))
        except OSError as exc:
            return exc.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def _bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
    except BaseException:
        listener.close()
        raise
    return listener


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _remove_own(path: Path, identity: tuple[int, int]) -> None:
    with suppress(OSError):
        if _identity(path) == identity:
            path.unlink()
