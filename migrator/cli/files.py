"""Writing a result into a file: all of it or nothing, and for nobody else to read.

The text goes into a new file beside the place, is forced to the disk, and takes the place; who
reads meanwhile reads what was there before, and so does everybody after a crash. A file that is
there keeps its mode; a new one gets 0600. What is no file, such as ``/dev/stdout``, is written to.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from migrator.errors import ConfigError

_MODE: Final = 0o600


def demand_place(option: str, path: Path) -> None:
    """Demand, before long work, that *path* can be written.

    Raises:
        ConfigError: Its folder is missing or must not be written, or it is a folder itself.
    """
    target = path.resolve()
    if target.is_dir():
        raise ConfigError(f"{option} {path} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        return
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {path} cannot be written: no folder {target.parent} that we may write to"
        )


def write_file(option: str, path: Path, text: str) -> None:
    """Write *text* and a line's end to *path*; what was there is replaced when all is written.

    Raises:
        ConfigError: It cannot be written. What was there before is there still.
    """
    try:
        _write(path.resolve(), (text + "\n").encode())
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigError(f"{option} {path} cannot be written: {reason}") from exc


def _write(target: Path, content: bytes) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    beside = target.with_name(f".migrator-{uuid4().hex}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), _mode(target))
            os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _mode(target: Path) -> int:
    try:
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    except FileNotFoundError:
        return _MODE
