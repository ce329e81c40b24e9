"""The way in: who may look, who is logged in, and who may act.

Rules of this file: the token is looked at in one place only, and not often; whoever acts sends a
form from one of our own pages, is logged in, and has the secret of the session.
"""

from __future__ import annotations

import hmac
import logging
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from migrator.config.process import is_loopback
from migrator.web.auth import LIFE_S, Listener, RateLimiter, Session, Sessions, is_forwarded
from migrator.web.page.pages import Form, demand_own_page, form_of, go, page, peer_of

_log = logging.getLogger(__name__)

WRONG_TOKENS: Final = 5
WRONG_SPAN_S: Final = 30.0
_LONGEST_NAME: Final = 60


class Login:
    """Knows who is logged in at one listener."""

    def __init__(self, listener: Listener) -> None:
        """Nobody is logged in."""
        self._listener = listener
        self._sessions = Sessions()
        self._limiter = RateLimiter(most=WRONG_TOKENS, span_s=WRONG_SPAN_S)

    @property
    def has_login(self) -> bool:
        """Whether anybody can log in: there is a token."""
        return self._listener.token is not None

    def session(self, request: Request) -> Session | None:
        """Return who asks; None: nobody who is logged in."""
        return self._sessions.find(request.cookies.get(_cookie_name(request)))

    def may_look(self, request: Request, session: Session | None) -> bool:
        """Return whether the page is shown: to anybody on this machine, else to who logged in."""
        if session is not None:
            return True
        is_from_here = is_loopback(peer_of(request)) and not is_forwarded(request.headers)
        return self._listener.is_loopback and is_from_here

    async def acting(self, request: Request) -> tuple[Session, Form]:
        """Return who acts, and their form; nobody gets past here who may not."""
        demand_own_page(request)
        session = self.session(request)
        if session is None:
            raise HTTPException(401, "nobody is logged in, or not any more; nothing was done")
        form = await form_of(request)
        if not session.owns(form.get("csrf", "")):
            raise HTTPException(403, "the form is not of this session; nothing was done")
        return session, form

    # ── logging in and out ──────────────────────────────────────────────────────────────────

    async def form(self, request: Request) -> Response:
        """Ask for the token."""
        if self.session(request) is not None:
            return go("/")
        return self._ask_token("", status=200 if self.has_login else 403)

    async def begin(self, request: Request) -> Response:
        """Give a cookie to whoever has the token."""
        demand_own_page(request)
        form, peer = await form_of(request), peer_of(request)
        wait_s = self._limiter.wait_s(peer)
        if wait_s > 0:
            text = f"Too many wrong tokens from your address; try again in {wait_s:.0f} s."
            answer = self._ask_token(text, status=429)
            answer.headers["retry-after"] = f"{wait_s:.0f}"
            return answer
        name = form.get("name", "").strip()
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise HTTPException(400, f"a name has at most {_LONGEST_NAME} characters in one line")
        if not self._is_token(form.get("token", "")):
            self._limiter.note_wrong(peer)
            _log.warning("a wrong token", extra={"action": "web_login_refused", "peer": peer})
            return self._ask_token("This is not the token.", status=401)
        self._sessions.end(request.cookies.get(_cookie_name(request)))
        cookie = self._sessions.begin(name)
        _log.info("logged in", extra={"action": "web_login", "peer": peer, "who": name})
        answer = go("/")
        answer.set_cookie(
            _cookie_name(request),
            cookie,
            max_age=LIFE_S,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return answer

    async def end(self, request: Request) -> Response:
        """End a session."""
        await self.acting(request)
        self._sessions.end(request.cookies.get(_cookie_name(request)))
        answer = go("/")
        answer.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")
        return answer

    def _ask_token(self, trouble: str, *, status: int) -> Response:
        values = {
            "session": None,
            "told": None,
            "trouble": trouble,
            "has_login": self.has_login,
            "may_go_back": self._listener.is_loopback,
        }
        return page("login.html", values, status=status)

    def _is_token(self, given: str) -> bool:
        token = self._listener.token
        return token is not None and hmac.compare_digest(given.strip().encode(), token.encode())


def _cookie_name(request: Request) -> str:
    """Return a name of this port's own: browsers give cookies to every port of a machine."""
    server = request.scope.get("server")
    return f"migrator-{server[1] if server else 0}"
