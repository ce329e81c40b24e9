"""What a browser is told, and what it says: templates, pages, forms, and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from migrator import __version__
from migrator.ledger.report import SIGNALS
from migrator.nservicebus.conversion import REASONS
from migrator.reports.pages import new_environment
from migrator.web.auth import Session, is_same_origin
from migrator.web.http import kind_of, read_body
from migrator.web.views import MODES, event_text

_PACKAGE: Final = "migrator.web"


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


def host(owner: str) -> str:
    """Return of a process that has a lease what people know: on which machine it is."""
    return owner.partition("/")[0]


@cache
def _environment() -> Environment:
    environment = new_environment(_PACKAGE)
    filters = (event_text, host, moment)
    environment.filters.update({each.__name__: each for each in filters})
    environment.globals.update(modes=MODES, reasons=REASONS, signals=SIGNALS)
    return environment


@cache
def build() -> str:
    """Return what tells pages apart that were made by different versions."""
    known = hashlib.sha256(__version__.encode())
    for name in ("style.css", "script.js"):
        known.update(asset(name))
    return known.hexdigest()[:12]


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
    """Return what answers with a file of ours."""
    body = asset(name)

    async def answer(_request: Request) -> Response:
        return Response(body, headers={"content-type": f"{kind}; charset=utf-8"})

    return answer


def go(address: str) -> Response:
    """Send the browser to a page to look at."""
    return RedirectResponse(address, status_code=303)


def demand_own_page(request: Request) -> None:
    """Refuse a form that no page of ours has sent: browsers say where it comes from."""
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
        raise HTTPException(400, "the body is no form") from exc
