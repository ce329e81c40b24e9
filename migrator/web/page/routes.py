"""The paths of the status page: what is looked at there, and what somebody logged in may do.

Rules of this file: looking changes nothing; whatever changes something is a POST that
``Login.acting`` let in, and the same command as by any other way; then the browser is sent to a
page to look at, so that loading it anew does nothing twice (to end twice is to end).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from migrator.config import HandOver
from migrator.ledger.report import QuarantineFilter
from migrator.nservicebus.conversion import Reason
from migrator.reports.words import REASONS
from migrator.web.auth import Listener, Session
from migrator.web.control import (
    Answer,
    CommandQueue,
    NoAnswerError,
    NotBegunError,
    RuntimeSetting,
    StatusService,
    parse_order,
)
from migrator.web.page.login import Login
from migrator.web.page.pages import Form, Handler, as_page, go, page, peer_of, static
from migrator.web.page.views import look

ROWS: Final = 50
"""Of the quarantine on one page."""
_KNOBS: Final = "/page/knobs"


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
    return QuarantineFilter(endpoint=given.get("endpoint") or None, reason=reason)


def number_of(given: Mapping[str, str], key: str) -> int:
    """Return a number that is not negative; 0 when it is not given."""
    text = given.get(key, "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(400, f"{key} must be a number")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One knob as the form shows it."""

    name: str
    meaning: str
    now: str
    """What is in force."""
    value: str
    """What the form holds: what is in force, or what was tried and refused."""
    trouble: str
    """Why it was refused; empty: it was not."""


class StatusPage:
    """Everything a browser may ask of one daemon at one listener."""

    def __init__(self, status: StatusService, commands: CommandQueue, listener: Listener) -> None:
        """Nobody is logged in."""
        self._status = status
        self._commands = commands
        self._login = Login(listener)

    def routes(self) -> list[Route]:
        """Return all paths; ``auth.is_page`` knows them by their beginning."""
        login = self._login
        paths: list[tuple[str, str, Handler]] = [
            ("/", "GET", self._overview),
            ("/page/live", "GET", self._live),
            ("/page/login", "GET", login.form),
            ("/page/login", "POST", login.begin),
            ("/page/logout", "POST", login.end),
            ("/page/pause", "POST", self._commanding("pause", "endpoint", "reason")),
            ("/page/resume", "POST", self._commanding("resume", "endpoint")),
            (_KNOBS, "GET", self._logged_in(self._knobs)),
            ("/page/set", "POST", self._set),
            ("/page/end", "GET", self._logged_in(self._end)),
            ("/page/drain", "POST", self._ending("drain")),
            ("/page/stop", "POST", self._ending("stop")),
            ("/page/quarantine", "GET", self._logged_in(self._quarantine)),
            ("/page/retry", "POST", self._retry),
            ("/page/style.css", "GET", static("style.css", "text/css")),
            ("/page/script.js", "GET", static("script.js", "text/javascript")),
            ("/page/icon.svg", "GET", static("icon.svg", "image/svg+xml")),
        ]
        return [Route(path, as_page(do), methods=[method]) for path, method, do in paths]

    # ── to look at ──────────────────────────────────────────────────────────────────────────────

    async def _overview(self, request: Request) -> Response:
        session = self._login.session(request)
        if not self._login.may_look(request, session):
            return go("/page/login")
        told = None if session is None else session.take_told()
        return page("overview.html", {**self._looked(session), "told": told})

    async def _live(self, request: Request) -> Response:
        session = self._login.session(request)
        if not self._login.may_look(request, session):
            raise HTTPException(401, "log in first")
        return page("live.html", self._looked(session))

    def _looked(self, session: Session | None) -> Mapping[str, object]:
        status = self._status
        return {
            "look": look(status.snapshot(), live=status.live(), ready=status.ready()),
            "session": session,
            "has_login": self._login.has_login,
        }

    def _logged_in(self, show: Callable[[Request, Session], Awaitable[Response]]) -> Handler:
        """Return what shows a page to whoever is logged in, and asks others for the token."""

        async def answer(request: Request) -> Response:
            session = self._login.session(request)
            return go("/page/login") if session is None else await show(request, session)

        return answer

    async def _quarantine(self, request: Request, session: Session) -> Response:
        which, after = filter_of(request.query_params), number_of(request.query_params, "after")
        found = await self._commands.quarantine(which, after=after, limit=ROWS)
        counts = self._status.snapshot().progress.quarantine
        values = {
            **_of_session(session),
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
            "next_page": address_of(which, found.rows[-1].key) if found.has_more else "",
            "first_page": address_of(which) if after else "",
        }
        return page("quarantine.html", values)

    async def _end(self, _request: Request, session: Session) -> Response:
        """Ask again before anything ends; that is a form of its own, so that no slip does it."""
        endpoints = self._status.snapshot().progress.endpoints
        in_flight = sum(each.in_flight for each in endpoints)
        return page("end.html", {**_of_session(session), "in_flight": in_flight})

    async def _knobs(self, _request: Request, session: Session) -> Response:
        return self._knobs_page(session)

    def _knobs_page(
        self,
        session: Session,
        *,
        tried: tuple[str, str] = ("", ""),
        trouble: str = "",
        status: int = 200,
    ) -> Response:
        fields = [*self._fields(tried, trouble)]
        values = {
            **_of_session(session),
            "fields": fields,
            # a field that this daemon does not have cannot show what was wrong with it
            "trouble": "" if any(field.trouble for field in fields) else trouble,
        }
        return page("knobs.html", values, status=status)

    def _fields(self, tried: tuple[str, str], trouble: str) -> Iterator[Field]:
        now = self._status.snapshot().knobs
        for knob in RuntimeSetting:
            if knob in now:
                is_tried = knob == tried[0]
                yield Field(
                    name=knob,
                    meaning=HandOver.model_fields[knob].description or "",
                    now=now[knob],
                    value=tried[1] if is_tried else now[knob],
                    trouble=trouble if is_tried else "",
                )

    # ── to do ───────────────────────────────────────────────────────────────────────────────────

    def _commanding(self, verb: str, *keys: str) -> Handler:
        """Return what gives a command, and shows on the first page what came of it."""

        async def answer(request: Request) -> Response:
            session, form = await self._login.acting(request)
            session.told = await self._told(verb, form, keys, session, request)
            return go("/")

        return answer

    def _ending(self, verb: str) -> Handler:
        """Return what ends the daemon; it answers at once, as the next page may be gone by then."""

        async def answer(request: Request) -> Response:
            session, form = await self._login.acting(request)
            told = await self._told(verb, form, (), session, request)
            values = {"session": session, "told": told, "has_login": True}
            return page("ending.html", values, status=200 if told.is_done else 409)

        return answer

    async def _retry(self, request: Request) -> Response:
        """Try rows in quarantine again; those that were shown are shown again."""
        session, form = await self._login.acting(request)
        keys = ("endpoint", "reason", "id")
        session.told = await self._told("retry", form, keys, session, request)
        shown = {key: form.get(f"shown_{key}", "") for key in ("endpoint", "reason")}
        return go(address_of(filter_of(shown)))

    async def _set(self, request: Request) -> Response:
        """Set one knob; what is refused stays in the form, with the reason beside it."""
        session, form = await self._login.acting(request)
        tried = form.get("knob", ""), form.get("value", "")
        try:
            answer = await self._told("set", form, ("knob", "value"), session, request)
        except _NotUnderstood as exc:
            return self._knobs_page(session, tried=tried, trouble=exc.detail, status=400)
        if not answer.is_done:
            return self._knobs_page(session, tried=tried, trouble=answer.text, status=409)
        session.told = answer
        return go(_KNOBS)

    async def _told(
        self, verb: str, form: Form, keys: Sequence[str], session: Session, request: Request
    ) -> Answer:
        """Give a command made of those fields that are filled in; return what came of it.

        Raises:
            _NotUnderstood: They make none.
        """
        given = {key: form[key] for key in keys if form.get(key, "").strip()}
        try:
            order = parse_order({"command": verb, **given})
        except ValueError as exc:
            raise _NotUnderstood(400, f"{exc}; nothing was done") from exc
        way = f"status page from {peer_of(request)}"
        who = f"{session.name}, {way}" if session.name else way
        try:
            return await self._commands.execute(order.command, who=who)
        except NotBegunError:
            text = "another command is still under way; nothing was done, try again"
        except NoAnswerError:
            text = "the daemon did not answer in time and may still do it; look below"
        return Answer(is_done=False, text=text)


class _NotUnderstood(HTTPException):
    """A form makes no command; nothing was done."""


def _of_session(session: Session) -> Mapping[str, object]:
    """Return what every page of somebody logged in begins with."""
    return {"session": session, "told": session.take_told(), "has_login": True}
