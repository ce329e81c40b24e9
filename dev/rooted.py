"""Servers from another installation than the machine's: programs unpacked into a folder.

``dev/unpack`` makes such a folder. Its ``usr`` is put over the machine's, for the one process that
is started and its children only; everything else (data folders, users, the network) is the
machine's. So a program finds its libraries where it expects them, and keeps its process id.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dev.processes import ServerFailedError

_BECOME = 'mount --bind "$0/usr" /usr && exec "$@"'


def other_root(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None without: the machine's programs.

    Raises:
        ServerFailedError: It is no such folder; to take another one silently would be a lie.
    """
    named = os.environ.get(variable)
    if not named:
        return None
    root = Path(named).absolute()
    if not (root / "usr").is_dir():
        raise ServerFailedError(f"{variable}={named}: there is no folder {root / 'usr'}")
    return root


def from_root(root: Path | None, command: Sequence[str]) -> list[str]:
    """Return *command* wrapped so that its ``/usr`` is that of *root*; as it is for None."""
    if root is None:
        return list(command)
    # a new mount namespace is private: nobody else sees what is mounted in it
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    return [*unshare, "--", "sh", "-c", _BECOME, str(root), *command]
