"""An address that is asked before anything is moved, and may say no."""

from __future__ import annotations

from typing import Final

import httpx

from migrator.service.throttles.base import Verdict

_PATIENCE_S: Final = 3.0
_SHOWN_CHARS: Final = 120
_READ_BYTES: Final = 4096
_LIMIT: Final = "until it answers 2xx"


class Veto:
    """Asks one address; anything but 2xx is a no, and so is no answer."""

    def __init__(self, url: str) -> None:
        """Connect when first asked."""
        self._url = url
        self._client = httpx.Client(timeout=_PATIENCE_S, headers={"User-Agent": "migrator"})

    def judge(self) -> Verdict | None:
        """Return what it said against it; None: nothing."""
        try:
            with self._client.stream("GET", self._url) as answer:
                if answer.is_success:
                    return None
                said = _first_line(next(answer.iter_bytes(_READ_BYTES), b""))
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            said = str(exc) or type(exc).__name__
            return Verdict(observed=f"{self._url} did not answer: {said}", limit=_LIMIT)
        what = f"{self._url} says {answer.status_code}"
        return Verdict(observed=f"{what}: {said}" if said else what, limit=_LIMIT)

    def close(self) -> None:
        """Close its connection."""
        self._client.close()


def _first_line(body: bytes) -> str:
    lines = body.decode(errors="replace").strip().splitlines()
    line = lines[0].strip() if lines else ""
    shown = "".join(each if each.isprintable() else " " for each in line)
    return shown[:_SHOWN_CHARS]
