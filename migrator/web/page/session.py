"""Who is logged in: sessions that only this process knows, and the secrets of their forms.

Rules of this file: a cookie holds a random name and nothing else; sessions end by themselves, and
all of them with the process; there are never more than a few.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from migrator.web.control_values import Answer

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
