"""The paths of the status page.

Rules of this file: looking changes nothing; whatever changes something is a POST from one of our
own pages, by somebody who is logged in, with the secret of the session; then the browser is sent
to a page to look at. The token is looked at in one place only, and not often.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from migrator.config.web import is_loopback
from migrator.domain.control import Answer
from migrator.domain.conversion import Reason
from migrator.domain.report import QuarantineFilter
from migrator.drawing.words import REASONS
from migrator.web.bodies import kind_of, read_body
from migrator.web.commands import parse_order
from migrator.web.guard import Door, is_same_origin
from migrator.web.orders import NoAnswerError, NotBegunError, Orders
from migrator.web.page.rendering import asset, build, render
from migrator.web.page.session import LIFE_S, Session, Sessions
from migrator.web.page.views import look
from migrator.web.panel import Panel
from migrator.web.tries import Tries

_log = logging.getLogger(__name__)

PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # with no-referrer a browser would not say of which origin its forms are
    "referrer-policy": "same-origin",
}
WRONG_TOKENS: Final = 5
WRONG_SPAN_S: Final = 30.0
ROWS: Final = 50
"""Of the quarantine on one page."""
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 16
_LONGEST_NAME: Final = 60

_Handler = Callable[[Request], Awaitable[Response]]


class StatusPage:
    """Everything a browser may ask of one daemon at one door."""

    def __init__(self, panel: Panel, orders: Orders, door: Door) -> None:
        """Nobody is logged in."""
        self._panel = panel
        self._orders = orders
        self._door = door
        self._sessions = Sessions()
        self._tries = Tries(most=WRONG_TOKENS, span_s=WRONG_SPAN_S)

    def routes(self) -> list[Route]:
        """Return all paths; ``guard.is_page`` knows them by their beginning."""
        paths: list[tuple[str, str, _Handler]] = [
            ("/", "GET", self._overview),
            ("/page/live", "GET", self._live),
            ("/page/login", "GET", self._login_form),
            ("/page/login", "POST", self._login),
            ("/page/logout", "POST", self._logout),
            ("/page/pause", "POST", self._pause),
            ("/page/resume", "POST", self._resume),
            ("/page/quarantine", "GET", self._quarantine),
            ("/page/retry", "POST", self._retry),
            ("/page/style.css", "GET", _static("style.css", "text/css")),
            ("/page/script.js", "GET", _static("script.js", "text/javascript")),
            ("/page/icon.svg", "GET", _static("icon.svg", "image/svg+xml")),
        ]
        return [Route(path, _as_page(do), methods=[method]) for path, method, do in paths]

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    async def _overview(self, request: Request) -> Response:
        session = self._session(request)
        if not self._may_look(request, session):
            return _go("/page/login")
        told = None if session is None else session.take_told()
        return _page("overview.html", {**self._looked(session), "told": told})

    async def _live(self, request: Request) -> Response:
        session = self._session(request)
        if not self._may_look(request, session):
            raise HTTPException(401, "log in first")
        return _page("live.html", self._looked(session))

    async def _quarantine(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            return _go("/page/login")
        which, after = _filter(request.query_params), _number(request.query_params, "after")
        found = await self._orders.quarantine(which, after=after, limit=ROWS)
        counts = self._panel.snapshot().progress.quarantine
        values = {
            "session": session,
            "told": session.take_told(),
            "has_login": True,
            "which": which,
            "found": found,
            "endpoints": sorted({each.endpoint for each in counts}),
            "reasons": sorted({each.reason for each in counts}),
            "meanings": REASONS,
            "total": sum(
                each.rows
                for each in counts
                if which.endpoint in (None, each.endpoint) and which.reason in (None, each.reason)
            ),
            "next_page": _address(which, found.rows[-1].key) if found.has_more else "",
            "first_page": _address(which) if after else "",
        }
        return _page("quarantine.html", values)

    def _looked(self, session: Session | None) -> Mapping[str, object]:
        panel = self._panel
        return {
            "look": look(panel.snapshot(), live=panel.live(), ready=panel.ready()),
            "session": session,
            "has_login": self._door.token is not None,
        }

    def _may_look(self, request: Request, session: Session | None) -> bool:
        """Return whether the page is shown: to anybody on this machine, else to who logged in."""
        return session is not None or (self._door.is_loopback and is_loopback(_peer(request)))

    # ── logging in and out ──────────────────────────────────────────────────────────────────

    async def _login_form(self, request: Request) -> Response:
        if self._session(request) is not None:
            return _go("/")
        return self._ask_token("", status=200 if self._door.token is not None else 403)

    async def _login(self, request: Request) -> Response:
        _demand_own_page(request)
        form, peer = await _form(request), _peer(request)
        wait_s = self._tries.wait_s(peer)
        if wait_s > 0:
            text = f"Too many wrong tokens from your address; try again in {wait_s:.0f} s."
            answer = self._ask_token(text, status=429)
            answer.headers["retry-after"] = f"{wait_s:.0f}"
            return answer
        name = form.get("name", "").strip()
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise HTTPException(400, f"a name has at most {_LONGEST_NAME} characters in one line")
        if not self._is_token(form.get("token", "")):
            self._tries.note_wrong(peer)
            _log.warning("a wrong token", extra={"action": "web_login_refused", "peer": peer})
            return self._ask_token("This is not the token.", status=401)
        self._sessions.end(request.cookies.get(_cookie_name(request)))
        cookie = self._sessions.begin(name)
        _log.info("logged in", extra={"action": "web_login", "peer": peer, "who": name})
        answer = _go("/")
        answer.set_cookie(
            _cookie_name(request),
            cookie,
            max_age=LIFE_S,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return answer

    async def _logout(self, request: Request) -> Response:
        await self._acting(request)
        self._sessions.end(request.cookies.get(_cookie_name(request)))
        answer = _go("/")
        answer.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")
        return answer

    def _ask_token(self, trouble: str, *, status: int) -> Response:
        values = {
            "session": None,
            "told": None,
            "trouble": trouble,
            "has_login": self._door.token is not None,
            "may_go_back": self._door.is_loopback,
        }
        return _page("login.html", values, status=status)

    def _is_token(self, given: str) -> bool:
        token = self._door.token
        return token is not None and hmac.compare_digest(given.strip().encode(), token.encode())

    # ── acting ──────────────────────────────────────────────────────────────────────────────

    async def _pause(self, request: Request) -> Response:
        session, form = await self._acting(request)
        await self._command("pause", form, ("endpoint", "reason"), session, request)
        return _go("/")

    async def _resume(self, request: Request) -> Response:
        session, form = await self._acting(request)
        await self._command("resume", form, ("endpoint",), session, request)
        return _go("/")

    async def _retry(self, request: Request) -> Response:
        session, form = await self._acting(request)
        await self._command("retry", form, ("endpoint", "reason", "id"), session, request)
        shown = {key: form.get(f"shown_{key}", "") for key in ("endpoint", "reason")}
        return _go(_address(_filter(shown)))

    async def _acting(self, request: Request) -> tuple[Session, Mapping[str, str]]:
        """Return who acts, and their form; nobody gets past here who may not."""
        _demand_own_page(request)
        session = self._session(request)
        if session is None:
            raise HTTPException(401, "nobody is logged in, or not any more; nothing was done")
        form = await _form(request)
        if not session.owns(form.get("csrf", "")):
            raise HTTPException(403, "the form is not of this session; nothing was done")
        return session, form

    async def _command(
        self,
        verb: str,
        form: Mapping[str, str],
        keys: tuple[str, ...],
        session: Session,
        request: Request,
    ) -> None:
        """Give a command made of those fields that are filled in; tell what came of it."""
        given = {key: form[key] for key in keys if form.get(key, "").strip()}
        try:
            order = parse_order({"command": verb, **given})
        except ValueError as exc:
            raise HTTPException(400, f"{exc}; nothing was done") from exc
        way = f"status page from {_peer(request)}"
        who = f"{session.name}, {way}" if session.name else way
        session.told = await self._answer(lambda: self._orders.execute(order.command, who=who))

    async def _answer(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await ask()
        except NotBegunError:
            text = "another command is still under way; nothing was done, try again"
        except NoAnswerError:
            text = "the daemon did not answer in time and may still do it; look below"
        return Answer(is_done=False, text=text)

    def _session(self, request: Request) -> Session | None:
        return self._sessions.find(request.cookies.get(_cookie_name(request)))


def _as_page(do: _Handler) -> _Handler:
    """Tell people as a page what went wrong."""

    async def answer(request: Request) -> Response:
        try:
            return await do(request)
        except HTTPException as exc:
            values = {"session": None, "told": None, "has_login": False, "text": exc.detail}
            return _page("refused.html", values, status=exc.status_code, headers=exc.headers)

    return answer


def _page(
    template: str,
    values: Mapping[str, object],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return Response(
        render(template, {"build": build(), **values}),
        status_code=status,
        headers={**PAGE_HEADERS, **(headers or {})},
    )


def _static(name: str, kind: str) -> _Handler:
    body = asset(name)

    async def answer(_request: Request) -> Response:
        return Response(body, headers={"content-type": f"{kind}; charset=utf-8"})

    return answer


def _go(address: str) -> Response:
    """Send the browser to a page to look at."""
    return RedirectResponse(address, status_code=303)


def _address(which: QuarantineFilter, after: int = 0) -> str:
    given = {"endpoint": which.endpoint, "reason": which.reason, "after": after or None}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return "/page/quarantine" + (f"?{query}" if query else "")


def _filter(given: Mapping[str, str]) -> QuarantineFilter:
    reason = given.get("reason") or None
    if reason is not None and reason not in set(Reason):
        raise HTTPException(400, "there is no such reason")
    return QuarantineFilter(endpoint=given.get("endpoint") or None, reason=reason)


def _number(given: Mapping[str, str], key: str) -> int:
    text = given.get(key, "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(400, f"{key} must be a number")
    return int(text)


def _demand_own_page(request: Request) -> None:
    """Refuse a form that no page of ours has sent: browsers say where it comes from."""
    if not is_same_origin(request.headers):
        raise HTTPException(403, "only a page of this daemon may do this; nothing was done")


async def _form(request: Request) -> Mapping[str, str]:
    if kind_of(request) != _FORM:
        raise HTTPException(415, f"the body must be {_FORM}")
    body = await read_body(request)
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        )
    except ValueError as exc:
        raise HTTPException(400, "the body is no form") from exc


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


def _cookie_name(request: Request) -> str:
    """Return a name of this port's own: browsers give cookies to every port of a machine."""
    server = request.scope.get("server")
    return f"migrator-{server[1] if server else 0}"
