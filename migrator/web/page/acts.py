"""What somebody who is logged in may do: every command is the same as by any other way.

Rules of this file: whatever changes something is a POST that ``Entrance.acting`` let in; then the
browser is sent to a page to look at, so that loading it anew does nothing twice (to end twice is
to end).
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from migrator.web.commands import parse_order
from migrator.web.control_values import Answer
from migrator.web.orders import NoAnswerError, NotBegunError, Orders
from migrator.web.page.entrance import Entrance
from migrator.web.page.exchange import Form, go, page, peer_of
from migrator.web.page.filters import address_of, filter_of
from migrator.web.page.session import Session


class NotUnderstood(HTTPException):
    """A form makes no command; nothing was done."""

    def __str__(self) -> str:
        """Return what is wrong, without the code."""
        return self.detail


class Acts:
    """Gives commands for those whom an entrance lets act."""

    def __init__(self, orders: Orders, entrance: Entrance) -> None:
        """Nothing was done yet."""
        self._orders = orders
        self._entrance = entrance

    async def pause(self, request: Request) -> Response:
        """Pause an endpoint, or all."""
        session, form = await self._entrance.acting(request)
        session.told = await self.command("pause", form, ("endpoint", "reason"), session, request)
        return go("/")

    async def resume(self, request: Request) -> Response:
        """Resume an endpoint, or all."""
        session, form = await self._entrance.acting(request)
        session.told = await self.command("resume", form, ("endpoint",), session, request)
        return go("/")

    async def retry(self, request: Request) -> Response:
        """Try rows in quarantine again; those that were shown are shown again."""
        session, form = await self._entrance.acting(request)
        keys = ("endpoint", "reason", "id")
        session.told = await self.command("retry", form, keys, session, request)
        shown = {key: form.get(f"shown_{key}", "") for key in ("endpoint", "reason")}
        return go(address_of(filter_of(shown)))

    async def drain(self, request: Request) -> Response:
        """Finish what is claimed, then end."""
        return await self._end("drain", request)

    async def stop(self, request: Request) -> Response:
        """End between two steps."""
        return await self._end("stop", request)

    async def _end(self, verb: str, request: Request) -> Response:
        """Answer at once: a page that the browser would be sent to may be gone by then."""
        session, form = await self._entrance.acting(request)
        told = await self.command(verb, form, (), session, request)
        values = {"session": session, "told": told, "has_login": True}
        return page("ending.html", values, status=200 if told.is_done else 409)

    async def command(
        self, verb: str, form: Form, keys: tuple[str, ...], session: Session, request: Request
    ) -> Answer:
        """Give a command made of those fields that are filled in; return what came of it.

        Raises:
            NotUnderstood: They make none.
        """
        given = {key: form[key] for key in keys if form.get(key, "").strip()}
        try:
            order = parse_order({"command": verb, **given})
        except ValueError as exc:
            raise NotUnderstood(400, f"{exc}; nothing was done") from exc
        way = f"status page from {peer_of(request)}"
        who = f"{session.name}, {way}" if session.name else way
        try:
            return await self._orders.execute(order.command, who=who)
        except NotBegunError:
            text = "another command is still under way; nothing was done, try again"
        except NoAnswerError:
            text = "the daemon did not answer in time and may still do it; look below"
        return Answer(is_done=False, text=text)
