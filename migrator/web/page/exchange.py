"""What is said to a browser, and what it says: pages, forms, and where they come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from migrator.web.bodies import kind_of, read_body
from migrator.web.guard import is_same_origin
from migrator.web.page.rendering import asset, build, render

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
            values = {"session": None, "told": None, "has_login": False, "text": exc.detail}
            return page("refused.html", values, status=exc.status_code, headers=exc.headers)

    return answer


def page(
    template: str,
    values: Mapping[str, object],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return *template*, filled with *values*."""
    return Response(
        render(template, {"build": build(), **values}),
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


def peer_of(request: Request) -> str:
    """Return the address of whoever asks; empty: not known."""
    return request.client.host if request.client else ""
