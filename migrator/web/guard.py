"""Who may ask what: the socket file's mode for those on this machine, a token for all others.

Without a token it is reading, and only for those on this machine: health and metrics always, what
the status page shows openly as well where nobody else can come in. What changes something, or
shows single rows, is never open.

Pure: what is known of a request goes in, a refusal or nothing comes out. Source: docs/control.md.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from migrator.config.process import is_loopback

MONITORING: Final = frozenset({"/live", "/ready", "/metrics"})
"""What anybody on this machine may look at, so that monitoring needs no secret."""
LOOKING: Final = frozenset({"/status"})
"""What the page shows as well: open where the page is, at an address of this machine alone."""
_FORWARDING: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""With one of these, a proxy on this machine says that it asks for somebody else."""
_HARMLESS: Final = frozenset({"GET", "HEAD"})
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One way in."""

    is_socket: bool
    """The socket file: whoever may open it may do everything."""
    token: str | None = field(default=None, repr=False)
    """None: nothing but the open paths is served over TCP."""
    is_loopback: bool = True
    """Only this machine can reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known of a request before it is looked into."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    peer: str
    """Address of whoever asks; empty: not known."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    text: str


def refusal(asked: Asked, door: Door) -> Refusal | None:
    """Return why *asked* is not answered at *door*; None when it is."""
    if door.is_socket:
        return None
    if door.is_loopback and _host(asked) not in _LOCAL_NAMES:
        # a foreign page whose name was made to point here would come by its own name
        return Refusal(403, "this address is for this machine only; ask by localhost or its IP")
    if _is_foreign(asked):
        return Refusal(403, "a page of another origin may not do this")
    if is_page(asked.path):
        return None  # it has a login of its own
    if is_open(asked, door):
        return None
    if door.token is None:
        return Refusal(
            403,
            "without a token only the page, /status, /live, /ready and /metrics are to be had, on "
            "this machine: no token is set; set web.token_file, or use the control socket",
        )
    if not _has_token(asked, door.token):
        return Refusal(401, "give the token of web.token as Authorization: Bearer …")
    return None


def is_open(asked: Asked, door: Door) -> bool:
    """Return whether *asked* needs no token: it reads, comes from here, and is for everybody."""
    if asked.method not in _HARMLESS or not is_loopback(asked.peer):
        return False
    if asked.path in MONITORING:
        return True
    return asked.path in LOOKING and door.is_loopback and not is_forwarded(asked.headers)


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


def _host(asked: Asked) -> str:
    try:
        return urlsplit(f"//{asked.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_foreign(asked: Asked) -> bool:
    """Return whether a browser says that another site's page asks for a change."""
    origin = asked.headers.get("origin")
    if origin is None or asked.method in _HARMLESS:
        return False
    try:
        return urlsplit(origin).netloc != asked.headers.get("host", "")
    except ValueError:
        return True


def _has_token(asked: Asked, token: str) -> bool:
    """Return whether the right token was given; takes as long for a wrong one."""
    scheme, _, given = asked.headers.get("authorization", "").partition(" ")
    is_same = hmac.compare_digest(given.strip().encode(), token.encode())
    return is_same and scheme.lower() == "bearer"
