"""The paths of the status page, and what is looked at there; looking changes nothing.

``entrance`` says who may, ``acts`` does what somebody wants done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from migrator.reports.drawing.words import REASONS
from migrator.web.guard import Door
from migrator.web.orders import Orders
from migrator.web.page.acts import Acts
from migrator.web.page.entrance import Entrance
from migrator.web.page.exchange import Handler, as_page, go, page, static
from migrator.web.page.filters import address_of, filter_of, number_of
from migrator.web.page.session import Session
from migrator.web.page.tuning import PATH, Tuning
from migrator.web.page.views import look
from migrator.web.panel import Panel

ROWS: Final = 50
"""Of the quarantine on one page."""


class StatusPage:
    """Everything a browser may ask of one daemon at one door."""

    def __init__(self, panel: Panel, orders: Orders, door: Door) -> None:
        """Nobody is logged in."""
        self._panel = panel
        self._orders = orders
        self._entrance = Entrance(door)
        self._acts = Acts(orders, self._entrance)
        self._tuning = Tuning(panel, self._entrance, self._acts)

    def routes(self) -> list[Route]:
        """Return all paths; ``guard.is_page`` knows them by their beginning."""
        entrance, acts, tuning = self._entrance, self._acts, self._tuning
        paths: list[tuple[str, str, Handler]] = [
            ("/", "GET", self._overview),
            ("/page/live", "GET", self._live),
            ("/page/login", "GET", entrance.login_form),
            ("/page/login", "POST", entrance.login),
            ("/page/logout", "POST", entrance.logout),
            ("/page/pause", "POST", acts.pause),
            ("/page/resume", "POST", acts.resume),
            (PATH, "GET", tuning.show),
            ("/page/set", "POST", tuning.set),
            ("/page/end", "GET", self._end),
            ("/page/drain", "POST", acts.drain),
            ("/page/stop", "POST", acts.stop),
            ("/page/quarantine", "GET", self._quarantine),
            ("/page/retry", "POST", acts.retry),
            ("/page/style.css", "GET", static("style.css", "text/css")),
            ("/page/script.js", "GET", static("script.js", "text/javascript")),
            ("/page/icon.svg", "GET", static("icon.svg", "image/svg+xml")),
        ]
        return [Route(path, as_page(do), methods=[method]) for path, method, do in paths]

    async def _overview(self, request: Request) -> Response:
        session = self._entrance.session(request)
        if not self._entrance.may_look(request, session):
            return go("/page/login")
        told = None if session is None else session.take_told()
        return page("overview.html", {**self._looked(session), "told": told})

    async def _live(self, request: Request) -> Response:
        session = self._entrance.session(request)
        if not self._entrance.may_look(request, session):
            raise HTTPException(401, "log in first")
        return page("live.html", self._looked(session))

    async def _quarantine(self, request: Request) -> Response:
        session = self._entrance.session(request)
        if session is None:
            return go("/page/login")
        which, after = filter_of(request.query_params), number_of(request.query_params, "after")
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
            "next_page": address_of(which, found.rows[-1].key) if found.has_more else "",
            "first_page": address_of(which) if after else "",
        }
        return page("quarantine.html", values)

    async def _end(self, request: Request) -> Response:
        """Ask again before anything ends; that is a form of its own, so that no slip does it."""
        session = self._entrance.session(request)
        if session is None:
            return go("/page/login")
        endpoints = self._panel.snapshot().progress.endpoints
        values = {
            "session": session,
            "told": session.take_told(),
            "has_login": True,
            "in_flight": sum(each.in_flight for each in endpoints),
        }
        return page("end.html", values)

    def _looked(self, session: Session | None) -> Mapping[str, object]:
        panel = self._panel
        return {
            "look": look(panel.snapshot(), live=panel.live(), ready=panel.ready()),
            "session": session,
            "has_login": self._entrance.has_login,
        }
