"""The page on which the knobs of a running daemon are set, one at a time as by ``migrator set``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from migrator.config import HandOver
from migrator.web.control_values import Knob
from migrator.web.page.acts import Acts, NotUnderstood
from migrator.web.page.entrance import Entrance
from migrator.web.page.exchange import go, page
from migrator.web.page.session import Session
from migrator.web.panel import Panel

PATH = "/page/knobs"


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


class Tuning:
    """Shows the knobs, and sets one."""

    def __init__(self, panel: Panel, entrance: Entrance, acts: Acts) -> None:
        """Nothing was tried yet."""
        self._panel = panel
        self._entrance = entrance
        self._acts = acts

    async def show(self, request: Request) -> Response:
        """Show what is set now."""
        session = self._entrance.session(request)
        if session is None:
            return go("/page/login")
        return self._page(session)

    async def set(self, request: Request) -> Response:
        """Set one knob; what is refused stays in the form, with the reason beside it."""
        session, form = await self._entrance.acting(request)
        tried = form.get("knob", ""), form.get("value", "")
        try:
            answer = await self._acts.command("set", form, ("knob", "value"), session, request)
        except NotUnderstood as exc:
            return self._page(session, tried=tried, trouble=str(exc), status=400)
        if not answer.is_done:
            return self._page(session, tried=tried, trouble=answer.text, status=409)
        session.told = answer
        return go(PATH)

    def _page(
        self,
        session: Session,
        *,
        tried: tuple[str, str] = ("", ""),
        trouble: str = "",
        status: int = 200,
    ) -> Response:
        fields = [*self._fields(tried, trouble)]
        values = {
            "session": session,
            "told": session.take_told(),
            "has_login": True,
            "fields": fields,
            # a field that this daemon does not have cannot show what was wrong with it
            "trouble": "" if any(field.trouble for field in fields) else trouble,
        }
        return page("knobs.html", values, status=status)

    def _fields(self, tried: tuple[str, str], trouble: str) -> Iterator[Field]:
        now = self._panel.snapshot().knobs
        for knob in Knob:
            if knob in now:
                is_tried = knob == tried[0]
                yield Field(
                    name=knob,
                    meaning=HandOver.model_fields[knob].description or "",
                    now=now[knob],
                    value=tried[1] if is_tried else now[knob],
                    trouble=trouble if is_tried else "",
                )
