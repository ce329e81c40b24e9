"""Authentication: the mode of the socket file for local users, a token for everyone else.

Without the token a client can only read, and only from this machine: health and metrics always; the
status page if no token is set or ``web.open_to_local`` is. Changes and single rows always need it.
The right token is always accepted; wrong ones are answered slowly. A browser that sent the right
one gets a session, which ends by itself and with the process.

Rules of this file: no body is read, and memory is bounded. Source: docs/control.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from migrator.config.settings import is_loopback
from migrator.web.control import Answer

MONITORING: Final = frozenset({"/live", "/ready", "/metrics"})
"""Readable without a token from this machine, so that monitoring needs no secret."""
LOOKING: Final = frozenset({"/status"})
"""The page shows the same; see ``may_look``."""
_FORWARDING: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""A proxy on this machine that sends one of these asks for another client."""
_HARMLESS: Final = frozenset({"GET", "HEAD"})
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A socket that takes requests, and its access rules."""

    is_socket: bool
    """The socket file: a user who can open it may do everything."""
    token: str | None = field(default=None, repr=False)
    """None: nothing but the open paths is served over TCP."""
    is_loopback: bool = True
    """Only this machine can reach it."""
    open_to_local: bool = False
    """Clients on this machine may read although a token is set."""


def refusal(asked: Request, listener: Listener) -> HTTPException | None:
    """Return why *asked* is not answered at *listener*; None when it is."""
    if listener.is_socket:
        return None
    if listener.is_loopback and _host(asked) not in _LOCAL_NAMES:
        # a foreign page whose name was made to point here would come by its own name
        return HTTPException(
            403, "this address is for this machine only; use localhost or its IP address"
        )
    if _is_foreign(asked):
        return HTTPException(403, "a page of another origin may not do this")
    if is_page(asked.scope["path"]):
        return None  # it has a login of its own
    if is_open(asked, listener):
        return None
    if listener.token is None:
        return HTTPException(
            403,
            "no token is set: only the page, /status, /live, /ready and /metrics are available, "
            "and only on this machine; set web.token_file, or use the control socket",
        )
    if not _has_token(asked, listener.token):
        return HTTPException(401, "send the token of web.token as Authorization: Bearer …")
    return None


def is_open(asked: Request, listener: Listener) -> bool:
    """Return whether *asked* needs no token: it reads, and comes from this machine."""
    # of the scope, as the routes are: a request's URL is made of its Host header as well
    path = asked.scope["path"]
    if asked.method not in _HARMLESS or not is_loopback(peer_of(asked)):
        return False
    return path in MONITORING or (path in LOOKING and may_look(asked, listener))


def may_look(asked: Request, listener: Listener) -> bool:
    """Return whether the page and ``/status`` are shown to *asked* without a token or a login.

    A client behind a proxy on this machine seems to be local, so a forwarded request needs a token.
    """
    if listener.token is not None and not listener.open_to_local:
        return False
    is_from_here = is_loopback(peer_of(asked)) and not _is_forwarded(asked.headers)
    return listener.is_loopback and is_from_here


def peer_of(asked: Request) -> str:
    """Return the client's address; empty: not known."""
    return asked.client.host if asked.client else ""


def _is_forwarded(headers: Mapping[str, str]) -> bool:
    """Return whether a proxy forwards it, from a client that need not be on this machine."""
    return any(name in headers for name in _FORWARDING)


def is_page(path: str) -> bool:
    """Return whether *path* belongs to the status page."""
    return path == "/" or path.startswith("/page/")


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a browser says that a page from here sends this; if it says nothing, no."""
    origin = headers.get("origin", "")
    try:
        is_ours = bool(origin) and urlsplit(origin).netloc == headers.get("host", "")
    except ValueError:
        return False
    return is_ours and headers.get("sec-fetch-site", "same-origin") == "same-origin"


def _host(asked: Request) -> str:
    try:
        return urlsplit(f"//{asked.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_foreign(asked: Request) -> bool:
    """Return whether a browser says that another site's page asks for a change."""
    is_asking = "origin" in asked.headers and asked.method not in _HARMLESS
    return is_asking and not is_same_origin(asked.headers)


def _has_token(asked: Request, token: str) -> bool:
    """Return whether the right token was given; takes as long for a wrong one."""
    scheme, _, given = asked.headers.get("authorization", "").partition(" ")
    is_same = hmac.compare_digest(given.strip().encode(), token.encode())
    return is_same and scheme.lower() == "bearer"


WRONG_S: Final = 1.0
"""Between two answers to wrong tokens."""
MOST_WRONG: Final = 8
"""Requests that wait for such an answer; further ones are refused at once."""


class WrongTokens:
    """Delays the answers to wrong tokens, for one event loop; a right one never waits.

    It does not count by address: behind a proxy all clients have the same one.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def wait(self) -> bool:
        """Return when a wrong token may be answered; False, at once: too many wait already."""
        if self._waiting >= MOST_WRONG:
            return False
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(WRONG_S)
        finally:
            self._waiting -= 1
        return True


LIFE_S: Final = 8 * 3600
"""A working day; then the token has to be sent again."""
MOST: Final = 64
"""Sessions; a further one ends the oldest."""
_SECRET_BYTES: Final = 32


@dataclass(slots=True, kw_only=True)
class Session:
    """A browser that sent the token."""

    name: str
    """As the user typed it; may be empty."""
    until_s: float
    """Monotonic."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_SECRET_BYTES), repr=False)
    """Every form of this session carries it; no other page knows it."""
    told: Answer | None = None
    """What came of the last command; shown once."""

    def owns(self, csrf: str) -> bool:
        """Return whether *csrf* is of this session, in constant time."""
        return hmac.compare_digest(csrf.encode(), self.csrf.encode())

    def take_told(self) -> Answer | None:
        """Return what is to be told, once."""
        told, self.told = self.told, None
        return told


class Sessions:
    """All sessions; for one thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, name: str) -> str:
        """Log a user in; return the value of the cookie."""
        self._end_old()
        while len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        cookie = secrets.token_urlsafe(_SECRET_BYTES)
        self._sessions[_key(cookie)] = Session(name=name, until_s=self._clock() + LIFE_S)
        return cookie

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of *cookie*; None: unknown, or ended."""
        found = self._sessions.get(_key(cookie)) if cookie else None
        return found if found is not None and found.until_s > self._clock() else None

    def end(self, cookie: str | None) -> None:
        if cookie:
            self._sessions.pop(_key(cookie), None)

    def __len__(self) -> int:
        return len(self._sessions)

    def _end_old(self) -> None:
        now_s = self._clock()
        for key in [key for key, each in self._sessions.items() if each.until_s <= now_s]:
            del self._sessions[key]


def _key(cookie: str) -> str:
    """Return the key of a session: the time of its lookup reveals nothing about other cookies."""
    return hashlib.sha256(cookie.encode()).hexdigest()
