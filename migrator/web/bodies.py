"""Reading what comes with a request: no more than may be, and no longer than it may take."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

LARGEST_BODY_BYTES: Final = 8 * 1024
BODY_PATIENCE_S: Final = 5.0
"""Within this the whole body of a request must be there."""


async def read_body(request: Request) -> bytes:
    """Return the body, of which no more is kept than may be.

    Raises:
        HTTPException: It is too large, too slow, or ends early; the connection is to be closed.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_PATIENCE_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY_BYTES:
                    raise _closing(413, f"the body has more than {LARGEST_BODY_BYTES} bytes")
    except TimeoutError as exc:
        raise _closing(408, f"the body did not come within {BODY_PATIENCE_S:g} s") from exc
    except ClientDisconnect as exc:
        raise _closing(400, "the body ended early") from exc
    return bytes(body)


def kind_of(request: Request) -> str:
    """Return the content type without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _closing(status: int, text: str) -> HTTPException:
    """Return an error after which the connection ends, because the rest of a body is not read."""
    return HTTPException(status, text, headers={"connection": "close"})
