"""A server process of our own: started in its own group, stopped by its pid, gone when we are."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import queue
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, Self

LOOPBACK = "127.0.0.1"


class ServerMissingError(RuntimeError):
    """The programs of a server are not installed here, and Docker cannot stand in."""


class ServerFailedError(RuntimeError):
    """A server did not start, or not in time; the text ends with the last lines of its log."""


# Below the range the kernel takes outgoing connections from (32768 and up): a port must still be
# free when a killed server comes back to it.
_PORTS = range(10240, 32000)


def free_port() -> int:
    """Return a loopback port nobody listens on, and no other process is given by this function.

    Several processes start servers at the same time, and a server binds its port only a while
    after it was chosen.
    """
    for port in random.SystemRandom().sample(_PORTS, k=min(200, len(_PORTS))):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0migrator-port-{port}")  # an abstract name: the kernel frees it with us
            with socket.socket() as probe:
                probe.bind((LOOPBACK, port))
        except OSError:
            claim.close()
            continue
        claim.detach()  # stays open, so the port stays ours until this process ends
        return port
    raise ServerFailedError("no free port on the loopback interface")


PATIENCE_S = 90.0
"""How long to wait for what has to come, in seconds: a busy machine shall not fail a test."""


def wait_until(ready: Callable[[], bool], *, seconds: float = PATIENCE_S, what: str) -> None:
    """Ask ``ready`` until it agrees; raise ``ServerFailedError`` with ``what`` if it never does.

    It is asked ever less often: most questions start a process or open a connection, and those who
    are waited for need the processor. A pause is a tenth of what was waited already, half a second
    at most, and at least as long as the question took.
    """
    began_s = asked_s = time.monotonic()
    while not ready():
        now_s = time.monotonic()
        if now_s - began_s > seconds:
            raise ServerFailedError(f"{what}: not within {seconds:g} s")
        time.sleep(min(max((now_s - began_s) / 10, now_s - asked_s, 0.01), 0.5))
        asked_s = time.monotonic()


# PR_SET_PDEATHSIG looks at the *thread* that started the child: a node restarted by a short-lived
# test thread would die with it. So one thread, as long-lived as this process, starts everything.
_Start = tuple["Future[subprocess.Popen[bytes]]", Callable[[], "subprocess.Popen[bytes]"]]
_starts: queue.SimpleQueue[_Start] = queue.SimpleQueue()
_starter_lock = threading.Lock()
_starter: threading.Thread | None = None


def _serve_starts() -> None:
    while True:
        answer, start = _starts.get()
        try:
            answer.set_result(start())
        except BaseException as error:  # the caller gets it
            answer.set_exception(error)


def _start_for_life(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    global _starter
    with _starter_lock:
        if _starter is None:
            _starter = threading.Thread(target=_serve_starts, name="server-starter", daemon=True)
            _starter.start()
    answer: Future[subprocess.Popen[bytes]] = Future()
    _starts.put((answer, start))
    return answer.result()


def with_parent(
    command: Sequence[str], *, user: str | None = None, death: str = "KILL"
) -> list[str]:
    """Return ``command`` wrapped so that it gets signal ``death`` with us and runs as ``user``."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        if user is not None:
            raise ServerMissingError("setpriv (package util-linux) is needed to leave root")
        return list(command)
    wrapper = [setpriv, "--pdeathsig", death]
    if user is not None:
        entry = pwd.getpwnam(user)
        wrapper += ["--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"]
    return [*wrapper, "--", *command]


class ServerProcess:
    """One foreground program, its process group and its log file."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id, which is also its group's; 0 when it does not run."""
        return self._process.pid if self.running and self._process else 0

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        user: str | None = None,
        death: str = "KILL",
    ) -> None:
        """Start the program in its own session; its output goes to the log file.

        When this process ends, for whatever reason, the program gets the signal ``death``.
        """
        wrapped = with_parent(command, user=user, death=death)

        def popen() -> subprocess.Popen[bytes]:
            with self.log.open("ab") as output:
                return subprocess.Popen(
                    wrapped,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

        self._process = _start_for_life(popen)

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the program, or to its whole group."""
        if self.running and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self._process.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for the end; tell whether it came in time."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """``kill -9`` for the whole group, and wait until it is gone."""
        self.send(signal.SIGKILL, group=True)
        self.wait(30)

    def stop(self, *, number: signal.Signals = signal.SIGTERM, seconds: float = 30) -> None:
        """Ask the program to end; kill it when it does not."""
        self.send(number)
        if not self.wait(seconds):
            self.kill()

    def wait_ready(self, ready: Callable[[], bool], *, seconds: float = 2 * PATIENCE_S) -> None:
        """Wait until ``ready`` agrees; give up at once when the program has ended."""

        def alive_and_ready() -> bool:
            if not self.running:
                raise ServerFailedError(f"{self.name} ended while starting:\n{self.log_tail()}")
            return ready()

        try:
            wait_until(alive_and_ready, seconds=seconds, what=f"{self.name} did not start")
        except ServerFailedError as error:
            self.kill()
            raise ServerFailedError(f"{error}\n{self.log_tail()}") from error

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class ElsewhereProcess(ServerProcess):
    """A server that another process of ours has started, and that several use."""

    def __init__(self, name: str, log: Path, pid: int) -> None:
        super().__init__(name, log)
        self._pid = pid

    @property
    def pid(self) -> int:
        """The process id."""
        return self._pid

    @property
    def running(self) -> bool:
        """Whoever has started it answers for that."""
        return True

    def start(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse."""
        self.send()

    def send(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse, and with it to stop and to kill."""
        raise ServerFailedError(f"{self.name} serves all tests: take a private one to disturb it")


class PrivateServer:
    """What all servers here share: a process, a data folder, and an end that cannot be forgotten.

    Use it as a context manager, or call ``close``; at the end of this process it is closed anyway.
    A pickled one is the running server as another process sees it, to be used and not disturbed.
    """

    def __init__(self, kind: str, data_dir: Path | None, *, name: str) -> None:
        self._temporary = data_dir is None
        self.data_dir = (
            Path(tempfile.mkdtemp(prefix=f"migrator-{kind}-")) if data_dir is None else data_dir
        )
        self.data_dir = self.data_dir.absolute()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(name, self.data_dir / f"{kind}.log")
        atexit.register(self.close)

    def __getstate__(self) -> dict[str, object]:
        here = self._process
        return vars(self) | {"_process": ElsewhereProcess(here.name, here.log, here.pid)}

    @property
    def shared(self) -> bool:
        """Whether another process has started it, so that it is not ours to disturb."""
        return isinstance(self._process, ElsewhereProcess)

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self._process.running

    @property
    def pid(self) -> int:
        """The process id of the server; 0 when it does not run."""
        return self._process.pid

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the server in good order."""
        self._process.stop(seconds=60)

    def kill(self) -> None:
        """``kill -9`` for the server and all that it started."""
        self._process.kill()

    def restart(self) -> None:
        """End the server in good order and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server at once, and remove its data unless the caller named the folder."""
        atexit.unregister(self.close)
        self.kill()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
