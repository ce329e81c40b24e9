"""One program of somebody else's, run to its end, within its time and without any harm to us.

Rules of this file:

* it is the leader of a process group of its own, and nothing of that group outlives it;
* it reads its document from a file without a name, so that nobody waits for it to read;
* of what it writes the end is kept, and it is read slowly: no flood costs us much;
* it gets the environment it is given, and nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOOK_EVERY_S: Final = 0.05
"""Between two looks at whether it wrote or ended."""
_READ_EVERY_S: Final = 0.01
"""Between two looks while it writes."""
_READ_BYTES: Final = 64 * 1024
"""At a look: what a pipe holds. So it writes 6 MB/s at most, whatever it does."""
_KEPT_BYTES: Final = 4096
_GRACE_S: Final = 1.0
"""Between being asked to end and being killed."""
_KILL_WAIT_S: Final = 2.0
"""A killed process is gone in moments, unless the kernel itself waits for something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    status: int | None
    """Exit status; negative: the signal that ended it; None: it could not even be killed."""
    is_late: bool
    """Its time was over before it ended by itself."""
    seconds: float
    output: str
    """The end of what it wrote to stdout and stderr."""
    output_bytes: int
    """All that it wrote, as far as it was read."""


def run_program(
    path: Path, document: str, *, environ: Mapping[str, str], deadline_s: Callable[[], float]
) -> Ended:
    """Run *path* and return how it ended; it is ended when its time is over.

    Args:
        path: The program; it gets no arguments.
        document: What it reads from its stdin.
        environ: Its whole environment.
        deadline_s: Asked again and again for the monotonic second at which its time is over.

    Raises:
        OSError: It could not be started; says why.
    """
    began_s = time.monotonic()
    with _Tail() as tail:
        with _nameless(document) as stdin, tail.entrance() as stdout:
            process = subprocess.Popen(  # noqa: S603  # the operator's own program, without a shell
                [path],
                stdin=stdin,
                stdout=stdout,
                stderr=stdout,
                env=dict(environ),
                cwd="/",
                start_new_session=True,
            )
        try:
            is_late = _attend(process, tail, deadline_s)
        finally:
            _signal(process, signal.SIGKILL)  # whatever it left in its group
        tail.read()
        try:
            status = process.wait(_KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            status = None
    return Ended(
        status=status,
        is_late=is_late,
        seconds=time.monotonic() - began_s,
        output=tail.text,
        output_bytes=tail.bytes,
    )


def _attend(process: subprocess.Popen[bytes], tail: _Tail, deadline_s: Callable[[], float]) -> bool:
    """Wait until *process* has ended, or is to be killed; return whether its time was over."""
    killed_at_s: float | None = None
    while not _has_ended(process):
        now_s = time.monotonic()
        if killed_at_s is None and now_s >= deadline_s():
            killed_at_s = now_s + _GRACE_S
            _signal(process, signal.SIGTERM)
        elif killed_at_s is not None and now_s >= killed_at_s:
            return True
        time.sleep(_READ_EVERY_S if tail.read() else _LOOK_EVERY_S)
    return killed_at_s is not None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether *process* ended, and leave it unburied: its group's number stays its own."""
    try:
        return bool(os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:  # somebody else buried it
        return True


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the whole group; one that is gone, or not ours to signal, is let be."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


@contextmanager
def _nameless(text: str) -> Iterator[int]:
    """Open a file that holds *text* and has no name; yield it at its beginning."""
    file = os.memfd_create("hook")
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(text.encode())
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


class _Tail:
    """A pipe, and the end of what came through it; nobody ever waits for what comes."""

    def __init__(self) -> None:
        self._exit, self._entrance = os.pipe()
        os.set_blocking(self._exit, False)
        self._kept = b""
        self.bytes = 0

    def __enter__(self) -> _Tail:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._exit)

    @contextmanager
    def entrance(self) -> Iterator[int]:
        """Yield where to write, for a program that is started meanwhile."""
        try:
            yield self._entrance
        finally:
            os.close(self._entrance)

    def read(self) -> bool:
        """Take what is there now, up to a limit; return whether there was anything."""
        try:
            chunk = os.read(self._exit, _READ_BYTES)
        except BlockingIOError:
            return False
        self.bytes += len(chunk)
        self._kept = (self._kept + chunk)[-_KEPT_BYTES:]
        return bool(chunk)

    @property
    def text(self) -> str:
        """What was kept."""
        return self._kept.decode(errors="replace")
