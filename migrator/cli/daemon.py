"""Which running daemon is meant, and asking it; imports neither settings nor a database for that.

Rules of this file: a daemon that a verb was not told of is only asked about the ledger if it works
with the one that the settings name; whatever it does not answer, the ledger is asked instead.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from migrator.cli.output import say
from migrator.cli.session import Session
from migrator.config.sources import AUTO, LEDGER_PLACE, ledger_place, peek
from migrator.errors import ConfigError, DaemonUnavailable
from migrator.nservicebus.timeouts import EndpointName
from migrator.web.client import DaemonClient
from migrator.web.listener import chosen, listening, trusted_peers

if TYPE_CHECKING:
    from migrator.status.document import StatusDocument

_SOCKET: Final = ("web", "socket")
_TIMEOUT_S: Final = 3.0
"""Whoever asks for the status can have it from the ledger by then."""


def ledger_by_daemon(session: Session) -> StatusDocument | None:
    """Return ``migrator/status/1`` as a running daemon tells it; None: none does, of this ledger.

    Of the settings only those are read that say which ledger is meant, and where to ask.
    """
    given = peek((_SOCKET, *LEDGER_PLACE), file=session.file, options=[*session.options()])
    if given is None:
        return None
    place, path = ledger_place(given), given.get(_SOCKET, AUTO)
    is_usual = path == AUTO
    for each in listening(os.environ) if is_usual else filter(None, [path]):
        socket = Path(str(each))
        peers = trusted_peers(socket) if is_usual else None
        try:
            return DaemonClient(socket, timeout_s=_TIMEOUT_S, peers=peers).ledger(place)
        except (DaemonUnavailable, ConfigError):
            continue
    return None


def client_of(
    session: Session, socket: Path | None, endpoint: EndpointName | None = None
) -> DaemonClient:
    """Return the daemon that *socket*, or else the settings, mean, or else the one that runs here.

    With *socket* no settings are read: an operator need not be allowed to read the secrets in them.
    Of several services, that of *endpoint* is taken.

    Raises:
        ConfigError: It cannot be told which is meant.
        DaemonUnavailable: None runs at the usual places.
    """
    path = socket or session.load().settings.web.socket
    if path is None:
        raise ConfigError(
            "where does the daemon listen? web.socket is empty; set it in migrator.toml, for the "
            "daemon as well, or MIGRATOR_WEB__SOCKET, or give --socket"
        )
    if path != AUTO:
        return DaemonClient(Path(path))
    usual = _usual(endpoint)
    say(f"the daemon at {usual}")  # perhaps not the one that the settings at hand belong to
    return DaemonClient(usual, peers=trusted_peers(usual))


def _usual(endpoint: EndpointName | None) -> Path:
    found = listening(os.environ)
    if not found:
        raise DaemonUnavailable(
            "no daemon listens at the usual places: is `migrator run` running on this machine, "
            "with the same web.socket, and is this user in the daemon's group? One of another "
            "user is asked only if --socket names it. `migrator status` shows what the ledger "
            "knows; nothing was sent"
        )
    path = chosen(found, endpoint)
    if path is None:
        shown = ", ".join(str(each) for each in found)
        raise ConfigError(f"several daemons listen here; say which with --socket: {shown}")
    return path
