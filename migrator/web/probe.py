"""``python -m migrator.web.probe FILE``: is the daemon that listens on this socket file alive?

For health checks of containers, which run it often: it loads little but the standard library, asks
``/live``, prints one line, and exits with 0 or 1.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Final

from migrator.text import visible

_TIMEOUT_S: Final = 5.0
_LONGEST_ANSWER: Final = 2000
_OK: Final = 200


def main(arguments: Sequence[str]) -> int:
    """Print the answer; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m migrator.web.probe FILE\n")
        return 1
    is_alive, text = probe(arguments[0])
    sys.stdout.write(visible(text, keep="\n") + "\n")
    return 0 if is_alive else 1


def probe(path: str) -> tuple[bool, str]:
    """Return whether the daemon at *path* is alive, and its answer."""
    with closing(HTTPConnection("daemon")) as line:
        line.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.sock.settimeout(_TIMEOUT_S)
        try:
            line.sock.connect(path)
            line.request("GET", "/live")
            answer = line.getresponse()
            text = answer.read(_LONGEST_ANSWER).decode(errors="replace").strip()
        except (OSError, HTTPException) as exc:
            return False, f"no answer from {path}: {exc}"
    return answer.status == _OK, text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
