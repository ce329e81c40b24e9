"""Where a daemon listens, and is looked for, when nobody said: in a runtime folder.

Rules of this file: systemd's folder for the service goes before the user's own; nothing is made
outside of them, and without either there is no socket. Source: docs/control.md.
"""

from __future__ import annotations

import os
import stat
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from migrator.nservicebus.timeouts import EndpointName
from migrator.web.sockets import answers

RUN: Final = Path("/run")
"""Where systemd makes the folders of its services; tests replace it."""
_SERVICE: Final = "migrator"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FILE: Final = "control.sock"
_PLAIN: Final = frozenset(f"{string.ascii_letters}{string.digits}:_.".encode())


def own_socket(environ: Mapping[str, str]) -> Path | None:
    """Return where a daemon with this environment listens; None: it has no runtime folder.

    The service's folder is systemd's ``RuntimeDirectory=``; the user's gets a folder of ours,
    which is made here for nobody else. A user's folder that is somebody else's, as ``su`` and
    ``sudo`` may hand it down, or that others may write to, is left alone: they could put anything
    in the place of the socket.
    """
    if given := environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0]) / _FILE
    folder = _of_user(environ)
    if folder is None or not _is_ours_alone(folder.parent):
        return None
    with suppress(OSError):  # whoever listens there says what is wrong
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder / _FILE


def listening(environ: Mapping[str, str]) -> Sequence[Path]:
    """Return the sockets at the usual places on which somebody listens; may be empty."""
    return [path for path in dict.fromkeys(_usual(environ)) if _is_socket(path) and answers(path)]


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
    yield from sorted(RUN.glob(f"{_SERVICE}@*/{_FILE}"))
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
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
