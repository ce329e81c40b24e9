"""The status page: its templates, its forms, who may look, who is logged in, what they may do.

Rules of this file: the token is looked at in one place only; looking changes
nothing; whatever changes something is a POST of one of our own pages that ``StatusPage._acting``
let in, and the same command as by any other way; then the browser is sent to a page to look at, so
that loading it anew does nothing twice (to end twice is to end).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from migrator import __version__
from migrator.config import HandOver
from migrator.config.values import meanings
from migrator.ledger.report import QuarantineFilter
from migrator.nservicebus.conversion import Reason
from migrator.reports.pages import new_environment
from migrator.web.auth import (
    LIFE_S,
    Listener,
    Session,
    Sessions,
    WrongTokens,
    is_same_origin,
    may_look,
    peer_of,
)
from migrator.web.control import (
    COMMANDS,
    Answer,
    CommandQueue,
    RuntimeSetting,
    StatusService,
    UnansweredError,
    parse_order,
)
from migrator.web.events import event_text
from migrator.web.http import kind_of, read_body
from migrator.web.views import MODES, look, matrix

_log = logging.getLogger(__name__)

_PACKAGE: Final = "migrator.web"
PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # with no-referrer a browser would not say of which origin its forms are
    "referrer-policy": "same-origin",
}
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 16

Handler = Callable[[Request], Awaitable[Response]]
Form = Mapping[str, str]

_LONGEST_NAME: Final = 60
ROWS: Final = 50
"""Of the quarantine on one page."""
_SHOWN_BYTES: Final = 16 * 1024
"""Of a body."""
_SETTINGS: Final = "/page/settings"


def address_of(which: QuarantineFilter, after: int = 0) -> str:
    """Return where those rows are shown whose key is above *after*."""
    given = {"endpoint": which.endpoint, "reason": which.reason, "after": after or None}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return "/page/quarantine" + (f"?{query}" if query else "")


def filter_of(given: Mapping[str, str]) -> QuarantineFilter:
    """Return what *given* asks for; empty: all."""
    reason = given.get("reason") or None
    if reason is not None and reason not in set(Reason):
        raise HTTPException(400, "there is no such reason")
    endpoint = given.get("endpoint")
    return QuarantineFilter(endpoints=[endpoint] if endpoint else None, reason=reason)


def number_of(given: Mapping[str, str], key: str) -> int:
    """Return a number that is not negative; 0 when it is not given."""
    text = given.get(key, "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(400, f"{key} must be a number")
    return int(text)


# ── templates, and what a browser is told ────────────────────────────────────────────────────────


def render(template: str, values: Mapping[str, object]) -> str:
    """Return *template*, filled with *values*."""
    return _environment().get_template(template).render(values)


def asset(name: str) -> bytes:
    """Return what is served as *name*."""
    if name.endswith(".css"):
        return render(name, {}).encode()
    return (files(_PACKAGE) / "static" / name).read_bytes()


def moment(at: datetime) -> str:
    """Return a time as people read it, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def body_text(body: bytes | None) -> str:
    """Return the beginning of a body, as far as it is text."""
    text = (body or b"")[:_SHOWN_BYTES].decode(errors="replace")
    return text + ("…" if len(body or b"") > _SHOWN_BYTES else "")


def host(owner: str) -> str:
    """Return of a process that has a lease what people know: on which machine it is."""
    return owner.partition("/")[0]


@cache
def _environment() -> Environment:
    environment = new_environment(_PACKAGE)
    filters = (body_text, event_text, host, matrix, moment)
    environment.filters.update({each.__name__: each for each in filters})
    environment.globals.update(modes=MODES, reasons=Reason.meanings())
    return environment


@cache
def build() -> str:
    """Return what tells pages apart that were made by different versions."""
    known = hashlib.sha256(__version__.encode())
    for name in ("style.css", "script.js"):
        known.update(asset(name))
    return known.hexdigest()[:12]


def as_page(do: Handler) -> Handler:
    """Tell people as a page what went wrong."""

    async def answer(request: Request) -> Response:
        try:
            return await do(request)
        except HTTPException as exc:
            values = {"text": exc.detail}
            return page("refused.html", values, status=exc.status_code, headers=exc.headers)

    return answer


def page(
    template: str,
    values: Mapping[str, object],
    *,
    session: Session | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return *template*, filled with *values*; whose session it is, is told what is to be told."""
    told = None if session is None or "told" in values else session.take_told()
    shared = {"build": build(), "session": session, "told": told, "has_login": bool(session)}
    return Response(
        render(template, {**shared, **values}),
        status_code=status,
        headers={**PAGE_HEADERS, **(headers or {})},
    )


def static(name: str, kind: str) -> Handler:
    """Return the endpoint of a static file."""
    body = asset(name)

    async def answer(_request: Request) -> Response:
        return Response(body, headers={"content-type": f"{kind}; charset=utf-8"})

    return answer


def go(address: str) -> Response:
    """Send the browser to a page to look at."""
    return RedirectResponse(address, status_code=303)


def demand_own_page(request: Request) -> None:
    """Refuse a form that another site sent: browsers name the origin."""
    if not is_same_origin(request.headers):
        raise HTTPException(403, "only a page of this daemon may do this; nothing was done")


async def form_of(request: Request) -> Form:
    """Return the fields of a form; of several with one name the last."""
    if kind_of(request) != _FORM:
        raise HTTPException(415, f"the body must be {_FORM}")
    body = await read_body(request)
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        )
    except ValueError as exc:
        raise HTTPException(400, "the body is not a form") from exc


class StatusPage:
    """Everything a browser may ask of one daemon at one listener."""

    def __init__(
        self,
        status: StatusService,
        commands: CommandQueue,
        listener: Listener,
        wrong: WrongTokens,
    ) -> None:
        self._status = status
        self._commands = commands
        self._listener = listener
        self._sessions = Sessions()
        self._wrong = wrong

    def routes(self) -> list[Route]:
        """Return all paths; ``auth.is_page`` knows them by their beginning."""
        paths: list[tuple[str, str, Handler]] = [
            ("/", "GET", self._overview),
            ("/page/live", "GET", self._live),
            ("/page/login", "GET", self._ask_for_token),
            ("/page/login", "POST", self._log_in),
            ("/page/logout", "POST", self._log_out),
            ("/page/pause", "POST", self._commanding("pause")),
            ("/page/resume", "POST", self._commanding("resume")),
            (_SETTINGS, "GET", self._logged_in(self._settings)),
            ("/page/set", "POST", self._set),
            ("/page/end", "GET", self._logged_in(self._end)),
            ("/page/drain", "POST", self._ending("drain")),
            ("/page/stop", "POST", self._ending("stop")),
            ("/page/quarantine", "GET", self._logged_in(self._quarantine)),
            ("/page/quarantine/row", "GET", self._logged_in(self._row)),
            ("/page/retry", "POST", self._deciding("retry")),
            ("/page/discard", "POST", self._deciding("discard")),
            ("/page/style.css", "GET", static("style.css", "text/css")),
            ("/page/script.js", "GET", static("script.js", "text/javascript")),
            ("/page/icon.svg", "GET", static("icon.svg", "image/svg+xml")),
        ]
        return [Route(path, as_page(do), methods=[method]) for path, method, do in paths]

    # ── who asks ────────────────────────────────────────────────────────────────────────────────

    def _session(self, request: Request) -> Session | None:
        """Return the session of the request; None: not logged in."""
        return self._sessions.find(request.cookies.get(_cookie_name(request)))

    def _may_look(self, request: Request, session: Session | None) -> bool:
        """Return whether the page is shown."""
        return session is not None or may_look(request, self._listener)

    def _logged_in(self, show: Callable[[Request, Session], Awaitable[Response]]) -> Handler:
        """Return an endpoint that shows a page after login, and the login form before."""

        async def answer(request: Request) -> Response:
            session = self._session(request)
            return go("/page/login") if session is None else await show(request, session)

        return answer

    async def _acting(self, request: Request) -> tuple[Session, Form]:
        """Return the session and its form; refuse all requests without both."""
        demand_own_page(request)
        session = self._session(request)
        if session is None:
            raise HTTPException(401, "you are not logged in, or no longer; nothing was done")
        form = await form_of(request)
        if not session.owns(form.get("csrf", "")):
            raise HTTPException(403, "the form is not from this session; nothing was done")
        return session, form

    async def _ask_for_token(self, request: Request) -> Response:
        if self._session(request) is not None:
            return go("/")
        return self._login_page(request, "", status=403 if self._listener.token is None else 200)

    def _login_page(self, request: Request, error: str, *, status: int) -> Response:
        values = {
            "error": error,
            "has_login": self._listener.token is not None,
            "may_go_back": may_look(request, self._listener),
        }
        return page("login.html", values, status=status)

    async def _log_in(self, request: Request) -> Response:
        """Set a cookie if the form has the token; only this checks it."""
        demand_own_page(request)
        form, peer = await form_of(request), peer_of(request)
        name = form.get("name", "").strip()
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise HTTPException(
                400, f"a name must be one line of at most {_LONGEST_NAME} characters"
            )
        token, given = self._listener.token, form.get("token", "").strip()
        if token is None or not hmac.compare_digest(given.encode(), token.encode()):
            if token is not None and not await self._wrong.wait():
                text = "Too many wrong tokens are being tried; the right one is always accepted."
                return self._login_page(request, text, status=429)
            _log.warning("a wrong token", extra={"action": "web_login_refused", "peer": peer})
            return self._login_page(request, "The token is wrong.", status=401)
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

    async def _log_out(self, request: Request) -> Response:
        await self._acting(request)
        self._sessions.end(request.cookies.get(_cookie_name(request)))
        answer = go("/")
        answer.delete_cookie(_cookie_name(request), httponly=True, samesite="strict")
        return answer

    # ── to look at ──────────────────────────────────────────────────────────────────────────────

    async def _overview(self, request: Request) -> Response:
        session = self._session(request)
        if not self._may_look(request, session):
            return go("/page/login")
        return page("overview.html", self._looked(), session=session)

    async def _live(self, request: Request) -> Response:
        session = self._session(request)
        if not self._may_look(request, session):
            raise HTTPException(401, "log in first")
        return page("live.html", {**self._looked(), "told": None}, session=session)

    def _looked(self) -> Mapping[str, object]:
        status, snapshot = self._status, self._status.snapshot()
        return {
            "look": look(snapshot, live=status.live(), ready=status.ready()),
            "title": snapshot.title,
            "has_login": self._listener.token is not None,
        }

    def _own_page(
        self, template: str, values: Mapping[str, object], session: Session, status: int = 200
    ) -> Response:
        """Return a page on which something may be done: it says to which system."""
        titled = {"title": self._status.snapshot().title, **values}
        return page(template, titled, session=session, status=status)

    async def _quarantine(self, request: Request, session: Session) -> Response:
        which, after = filter_of(request.query_params), number_of(request.query_params, "after")
        found = await self._commands.quarantine(which, after=after, limit=ROWS)
        counts = self._status.snapshot().progress.quarantine
        values = {
            "which": which,
            "found": found,
            "counts": counts,
            "total": sum(
                each.rows
                for each in counts
                if which.endpoint in (None, each.endpoint) and which.reason in (None, each.reason)
            ),
            "next_page": address_of(which, found.rows[-1].key) if found.has_more else "",
            "first_page": address_of(which) if after else "",
        }
        return self._own_page("quarantine.html", values, session)

    async def _row(self, request: Request, session: Session) -> Response:
        """Show what the store had of a row; several endpoints may have one of that id."""
        which = replace(filter_of(request.query_params), timeout_id=request.query_params.get("id"))
        if which.timeout_id is None:
            raise HTTPException(400, "which row?")
        found = await self._commands.quarantined(which)
        if not found:
            text = "there is no such row in quarantine, or the ledger does not answer"
            raise HTTPException(404, text)
        return self._own_page("row.html", {"found": found}, session)

    async def _end(self, _request: Request, session: Session) -> Response:
        """Ask again before anything ends; that is a form of its own, so that no slip does it."""
        endpoints = self._status.snapshot().progress.endpoints
        in_flight = sum(each.in_flight for each in endpoints)
        return self._own_page("end.html", {"in_flight": in_flight}, session)

    async def _settings(
        self,
        _request: Request,
        session: Session,
        tried: tuple[str, str] = ("", ""),
        error: str = "",
        status: int = 200,
    ) -> Response:
        """Show what is in force; in the field of the setting that was *tried*, what was typed."""
        meant = meanings(HandOver)
        values = {
            "settings": self._status.snapshot().settings,
            "meanings": {str(each): meant[each] for each in RuntimeSetting},
            "tried": tried,
            "error": error,
        }
        return self._own_page("settings.html", values, session, status=status)

    # ── to do ───────────────────────────────────────────────────────────────────────────────────

    def _commanding(self, verb: str) -> Handler:
        """Return what gives a command, and shows on the first page what came of it."""

        async def answer(request: Request) -> Response:
            session, form = await self._acting(request)
            session.told = await self._told(verb, form, session, request)
            return go("/")

        return answer

    def _ending(self, verb: str) -> Handler:
        """Return what ends the daemon; it answers at once, as the next page may be gone by then."""

        async def answer(request: Request) -> Response:
            session, form = await self._acting(request)
            told = await self._told(verb, form, session, request)
            status = 200 if told.is_done else 409
            return page("ending.html", {"told": told}, session=session, status=status)

        return answer

    def _deciding(self, verb: str) -> Handler:
        """Return what decides about rows in quarantine; those that were shown are shown again."""

        async def answer(request: Request) -> Response:
            session, form = await self._acting(request)
            session.told = await self._told(verb, form, session, request)
            shown = {key: form.get(f"shown_{key}", "") for key in ("endpoint", "reason")}
            return go(address_of(filter_of(shown)))

        return answer

    async def _set(self, request: Request) -> Response:
        """Set one setting; what is refused stays in the form, with the reason."""
        session, form = await self._acting(request)
        tried = form.get("setting", ""), form.get("value", "")
        try:
            answer = await self._told("set", form, session, request)
        except HTTPException as exc:
            return await self._settings(request, session, tried, exc.detail, 400)
        if not answer.is_done:
            return await self._settings(request, session, tried, answer.text, 409)
        session.told = answer
        return go(_SETTINGS)

    async def _told(self, verb: str, form: Form, session: Session, request: Request) -> Answer:
        """Give a command made of those fields that are filled in; return what came of it.

        Raises:
            HTTPException: They make none; nothing was done.
        """
        keys = {each.name for each in fields(COMMANDS[verb])} & form.keys()
        given = {key: form[key] for key in keys if form[key].strip()}
        try:
            command, _ = parse_order({"command": verb, **given})
        except ValueError as exc:
            raise HTTPException(400, f"{exc}; nothing was done") from exc
        way = f"status page from {peer_of(request)}"
        who = f"{session.name}, {way}" if session.name else way
        try:
            return await self._commands.execute(command, who=who)
        except UnansweredError as exc:
            return Answer(is_done=False, text=str(exc))


def _cookie_name(request: Request) -> str:
    """Return a name of this port's own: browsers give cookies to every port of a machine."""
    server = request.scope.get("server")
    return f"migrator-{server[1] if server else 0}"
