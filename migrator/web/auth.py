"""Who may ask what: the socket file's mode for those on this machine, a token for all others.

Without a token it is reading, and only for those on this machine: health and metrics always, what
the status page shows openly as well where nobody else can come in. What changes something, or
shows single rows, is never open. Wrong tokens are counted by address, and a browser that gave the
right one has a session, which ends by itself and with the process.

Rules of this file: a request goes in, a refusal or nothing comes out, and no body is read; memory
is bounded, whoever comes; time is asked of the clock that is given. Source: docs/control.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from migrator.config.settings import is_loopback
from migrator.web.control import Answer

MONITORING: Final = frozenset({"/live", "/ready", "/metrics"})
"""What anybody on this machine may look at, so that monitoring needs no secret."""
LOOKING: Final = frozenset({"/status"})
"""What the page shows as well: open where the page is, at an address of this machine alone."""
_FORWARDING: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""With one of these, a proxy on this machine says that it asks for somebody else."""
_HARMLESS: Final = frozenset({"GET", "HEAD"})
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One way in."""

    is_socket: bool
    """The socket file: whoever may open it may do everything."""
    token: str | None = field(default=None, repr=False)
    """None: nothing but the open paths is served over TCP."""
    is_loopback: bool = True
    """Only this machine can reach it."""


def refusal(asked: Request, listener: Listener) -> HTTPException | None:
    """Return why *asked* is not answered at *listener*; None when it is."""
    if listener.is_socket:
        return None
    if listener.is_loopback and _host(asked) not in _LOCAL_NAMES:
        # a foreign page whose name was made to point here would come by its own name
        return HTTPException(
            403, "this address is for this machine only; ask by localhost or its IP"
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
            "without a token only the page, /status, /live, /ready and /metrics are to be had, on "
            "this machine: no token is set; set web.token_file, or use the control socket",
        )
    if not _has_token(asked, listener.token):
        return HTTPException(401, "give the token of web.token as Authorization: Bearer …")
    return None


def is_open(asked: Request, listener: Listener) -> bool:
    """Return whether *asked* needs no token: it reads, comes from here, and is for everybody."""
    # of the scope, as the routes are: a request's URL is made of its Host header as well
    path = asked.scope["path"]
    if asked.method not in _HARMLESS or not is_loopback(peer_of(asked)):
        return False
    if path in MONITORING:
        return True
    return path in LOOKING and listener.is_loopback and not is_forwarded(asked.headers)


def peer_of(asked: Request) -> str:
    """Return the address of whoever asks; empty: not known."""
    return asked.client.host if asked.client else ""


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Return whether a proxy says that somebody else asks, who need not be on this machine."""
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


WRONG_SPAN_S: Final = 30.0
"""An address that was wrong too often within that time is not listened to until it is over."""
_MOST_ADDRESSES: Final = 256
_HOST_BITS: Final = 64
"""Of an IPv6 address: whoever has one has all of its network."""


class RateLimiter:
    """How often each address was wrong within ``WRONG_SPAN_S``."""

    def __init__(self, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Let *most* be wrong from one address within 30 s, and then none until they are over."""
        self._most = most
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When each network began to be wrong, and how often it was."""

    def wait_s(self, address: str) -> float:
        """Return how long nothing of *address* is looked at, right or wrong; 0: it is."""
        began_s, wrong = self._window(_network(address))
        return began_s + WRONG_SPAN_S - self._clock() if wrong >= self._most else 0.0

    def note_wrong(self, address: str) -> None:
        """Count one more."""
        key = _network(address)
        began_s, wrong = self._window(key)
        while key not in self._windows and len(self._windows) >= _MOST_ADDRESSES:
            self._windows.popitem(last=False)
        self._windows[key] = (began_s, wrong + 1)

    def __len__(self) -> int:
        return len(self._windows)

    def _window(self, key: str) -> tuple[float, int]:
        began_s, wrong = self._windows.get(key, (-math.inf, 0))
        if self._clock() - began_s < WRONG_SPAN_S:
            return began_s, wrong
        self._windows.pop(key, None)
        return self._clock(), 0


def _network(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(int(parsed) >> _HOST_BITS)
    return str(parsed)


LIFE_S: Final = 8 * 3600
"""A working day; then the token is wanted again."""
MOST: Final = 64
"""Whoever comes then ends the oldest session."""
_SECRET_BYTES: Final = 32


@dataclass(slots=True, kw_only=True)
class Session:
    """Somebody who gave the token."""

    name: str
    """As they call themselves; may be empty."""
    until_s: float
    """Monotonic."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_SECRET_BYTES), repr=False)
    """What every form of this session carries, and no other page knows."""
    told: Answer | None = None
    """What came of the last command; shown once."""

    def owns(self, csrf: str) -> bool:
        """Return whether a form with *csrf* is one of ours; takes as long when it is not."""
        return hmac.compare_digest(csrf.encode(), self.csrf.encode())

    def take_told(self) -> Answer | None:
        """Return what is to be told, once."""
        told, self.told = self.told, None
        return told


class Sessions:
    """Everybody who is logged in; for one thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nobody."""
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, name: str) -> str:
        """Log somebody in; return what their cookie has to hold."""
        self._end_old()
        while len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        cookie = secrets.token_urlsafe(_SECRET_BYTES)
        self._sessions[_key(cookie)] = Session(name=name, until_s=self._clock() + LIFE_S)
        return cookie

    def find(self, cookie: str | None) -> Session | None:
        """Return whose *cookie* it is; None: nobody's, or not any more."""
        found = self._sessions.get(_key(cookie)) if cookie else None
        return found if found is not None and found.until_s > self._clock() else None

    def end(self, cookie: str | None) -> None:
        """Log somebody out."""
        if cookie:
            self._sessions.pop(_key(cookie), None)

    def __len__(self) -> int:
        return len(self._sessions)

    def _end_old(self) -> None:
        now_s = self._clock()
        for key in [key for key, each in self._sessions.items() if each.until_s <= now_s]:
            del self._sessions[key]


def _key(cookie: str) -> str:
    """Return what a cookie is looked up by: how long that takes tells nothing about others."""
    return hashlib.sha256(cookie.encode()).hexdigest()
