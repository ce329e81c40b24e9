"""Starts the program as a process of its own without the second that importing it costs.

A server process imports all of migrator once; each start is a fork of it, with environment,
working directory and output of its own. What differs from a fresh interpreter: every module is
loaded already, ``PYTHON*`` variables mean nothing, and the command line that others see is the
server's. A test that is about one of these starts a fresh interpreter.

``dev/test`` runs one server for all of its processes, and tells them the path of its socket
(TEST_FORK_SERVER); without it each starts its own.

Source of the idea: ``multiprocessing.forkserver`` of the standard library, which cannot hand
over output, environment and exit status as a started program has them.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[2]
_LENGTH: Final = struct.Struct("!I")
_STATUS: Final = struct.Struct("!i")
_FDS: Final = 3
"""Standard output, standard error, and where the exit status is to be written."""


class ForkServer:
    """The connection of one test process to a server."""

    def __init__(self) -> None:
        """Use the one that others use, or start one that ends with this process.

        The first program waits until everything is imported.
        """
        self._lock = threading.Lock()
        if path := os.environ.get("TEST_FORK_SERVER"):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(path)
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
            )
        atexit.register(process.wait)
        atexit.register(self._socket.close)  # before: then it ends

    def fork(self, request: Mapping[str, Any], fds: Sequence[int]) -> int:
        """Start one program; return its process id."""
        payload = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._socket, [_LENGTH.pack(len(payload))], fds)
            self._socket.sendall(payload)
            return int(_LENGTH.unpack(_exactly(self._socket, _LENGTH.size))[0])


_server: ForkServer | None = None
_server_lock = threading.Lock()


def _the_server() -> ForkServer:
    global _server
    with _server_lock:
        if _server is None:
            _server = ForkServer()
        return _server


class Forked(subprocess.Popen[str]):
    """What ``subprocess.Popen`` gives, of a program that the server forked."""

    _status_fd: int = -1
    _waitpid_lock: threading.Lock

    def __init__(self, args: Sequence[str], *, env: Mapping[str, str]) -> None:
        """Run ``migrator`` with *args*, both outputs in pipes, as text."""
        super().__init__(args, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        """Fork instead of executing; the positions are those of CPython 3.11 to 3.14."""
        env, (_, _, out_read, out_write, error_read, error_write) = rest[5], rest[9:15]
        del out_read, error_read
        self._status_fd, status_write = os.pipe()
        try:
            request = {"args": list(args), "env": dict(env), "cwd": str(Path.cwd())}
            self.pid = _the_server().fork(request, (out_write, error_write, status_write))
            self._child_created = True
        finally:
            for fd in (out_write, error_write, status_write):
                os.close(fd)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Return the process id and its status as ``waitpid`` has it; 0 while it runs."""
        os.set_blocking(self._status_fd, not wait_flags & os.WNOHANG)
        try:
            found = os.read(self._status_fd, _STATUS.size)
        except BlockingIOError:
            return 0, 0
        if not found:
            raise RuntimeError("the fork server is gone, and with it the exit status")
        os.close(self._status_fd)
        return self.pid, _STATUS.unpack(found)[0]

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        """Return the exit code; None while it runs, or while another thread asks."""
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


# ── the server's side ───────────────────────────────────────────────────────────────────────────


def _serve(clients: list[socket.socket], listener: socket.socket | None) -> list[str] | None:
    """Fork for each request of a client; return the arguments in the child.

    None: there is no client any more, and nobody can become one.
    """
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, int] = {}
    always: list[Any] = [woken, *filter(None, [listener])]
    while clients or listener:
        ready, _, _ = select.select([*always, *clients], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ended(running)
        if listener and listener in ready:
            clients.append(listener.accept()[0])
        for client in [each for each in clients if each in ready]:
            received = None
            with suppress(OSError):  # it was killed: others go on
                received = _receive(client)
            if received is None:
                clients.remove(client)
                client.close()
                continue
            request, (out, error, status) = received
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                ours = [each.detach() for each in (*clients, *filter(None, [listener]))]
                for fd in (*ours, woken, wake, status, *running.values()):
                    os.close(fd)
                _become(request, out, error)
                return list(request["args"])
            os.close(out)
            os.close(error)
            running[pid] = status
            with suppress(OSError):
                client.sendall(_LENGTH.pack(pid))
    return None


def _report_ended(running: dict[int, int]) -> None:
    """Write the status of each program that has ended to whoever started it."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        fd = running.pop(pid)
        with suppress(BrokenPipeError):  # nobody wants to know any more
            os.write(fd, _STATUS.pack(status))
        os.close(fd)


def _become(request: Mapping[str, Any], out: int, error: int) -> None:
    """Have this process look like one that was just started."""
    for fd, place in ((out, 1), (error, 2)):
        os.dup2(fd, place)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    random.seed()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as the interpreter starts
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next request with its file descriptors; None at the end."""
    head, fds, _, _ = socket.recv_fds(requests, _LENGTH.size, _FDS)
    if not head:
        return None
    payload = _exactly(requests, _LENGTH.unpack(head)[0])
    return json.loads(payload), fds


def _exactly(source: socket.socket, size: int) -> bytes:
    """Read *size* bytes."""
    pieces = b""
    while len(pieces) < size:
        piece = source.recv(size - len(pieces))
        if not piece:
            raise ConnectionError("the fork server is gone")
        pieces += piece
    return pieces


def _import_all() -> None:
    """Import the program with everything it may need; nothing of it starts a thread.

    What it makes when it is first asked for, as the validator of settings, is made here, too.
    """
    import migrator

    for each in pkgutil.walk_packages(migrator.__path__, "migrator."):
        importlib.import_module(each.name)
    for name in (
        *("psycopg", "sqlalchemy.dialects.postgresql.psycopg", "pymysql"),
        *("httpcore", "pydantic.type_adapter", "typer._adapters"),
    ):
        importlib.import_module(name)
    from migrator.config.settings import Settings
    from migrator.ledger.tables import build_tables, ledger_names

    Settings.model_rebuild()
    for kind in ("postgresql", "mysql", "sqlite"):
        build_tables(ledger_names(kind))
    gc.collect()
    gc.freeze()
    if threading.active_count() != 1:
        raise RuntimeError("an import starts a thread: forks would lack it")


def _run(arguments: Sequence[str]) -> NoReturn:
    """Run the program to its end, and skip the taking apart of every module that follows it."""
    from migrator.__main__ import main

    sys.argv = ["migrator", *arguments]
    code = 0
    try:
        main()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _main(place: str) -> None:
    """Serve the client whose file descriptor *place* is, or all who connect to it, a path."""
    clients, listener = [], None
    if place.isdigit():
        clients = [socket.socket(fileno=int(place))]
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        listener.listen()
    _import_all()
    arguments = _serve(clients, listener)
    if arguments is not None:
        _run(arguments)


if __name__ == "__main__":
    _main(sys.argv[1])
