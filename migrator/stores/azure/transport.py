"""How requests go over the wire: kept connections, and no faster than the account says.

Rules of this file: an account that is busy says so for all that is asked of it, so all wait
together; nobody waits for longer than ``MOST_S`` or so at a time, and nothing is repeated here.
Source: RFC 9110 10.2.3 (Retry-After); Azure Storage answers 503 ``ServerBusy`` or 429.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import uniform
from typing import Any, Final

import requests
from azure.core.pipeline.transport import RequestsTransport
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies

_log = logging.getLogger(__name__)

MOST_S: Final = 15.0
"""The longest wait between two requests, whatever is asked for."""
_BUSY: Final = frozenset({429, 503})
_TOLD_EVERY_S: Final = 60.0
_SPREAD: Final = 0.2
"""Part of a wait that is added by chance, so that not all come back at the same moment."""

Seen = Callable[[str, str], None]
"""Told of each request: its method and its address."""


class Pace:
    """When the next request may go to an account; its clients and their threads share one."""

    def __init__(
        self,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Let everything go at once until told otherwise."""
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before_s = float("-inf")
        self._told_s = float("-inf")
        self._answers = 0

    def wait(self) -> None:
        """Return when a request may go; at once, unless the account asked for time."""
        left_s = min(self._not_before_s - self._monotonic_s(), MOST_S)
        if left_s > 0:
            self._sleep(left_s * uniform(1.0, 1.0 + _SPREAD))  # noqa: S311 - spreads, hides nothing

    def learn(self, status: int, retry_after: str | None) -> None:
        """Remember what an answer says of how busy the account is."""
        if status not in _BUSY:
            return
        asked_s = min(seconds_of(retry_after), MOST_S)
        now_s = self._monotonic_s()
        with self._lock:
            self._answers += 1
            self._not_before_s = max(self._not_before_s, now_s + asked_s)
            if now_s - self._told_s < _TOLD_EVERY_S:
                return
            self._told_s, answers, self._answers = now_s, self._answers, 0
        _log.warning(
            "Azure Storage is busy and takes requests more slowly; they are repeated",
            extra={"action": "store_busy", "status": status, "count": answers, "wait_s": asked_s},
        )


def seconds_of(retry_after: str | None) -> float:
    """Return the seconds that a Retry-After header asks for; 0: it asks for none, or is none."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max((until - datetime.now(UTC)).total_seconds(), 0.0)


class PacedTransport(RequestsTransport):  # type: ignore[misc]  # it exports itself lazily, untyped
    """Keeps as many connections as there are requests at a time, and waits when told to."""

    def __init__(self, *, connections: int, pace: Pace, seen: Seen) -> None:
        """Send to one service of an account, whichever the first request names."""
        session = requests.Session()
        session.trust_env = False  # the environment is looked at once, not at each request
        adapter = HTTPAdapter(pool_maxsize=connections)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        super().__init__(session=session, session_owner=True, connection_verify=bundle or True)
        self._pace = pace
        self._seen = seen
        self._proxies: dict[str, str] | None = None

    def send(self, request: Any, **options: Any) -> Any:
        """Send one request when it may go, and learn from the answer."""
        self._pace.wait()
        self._seen(request.method, request.url)
        if self._proxies is None:
            self._proxies = get_environ_proxies(request.url)
        options.setdefault("proxies", self._proxies)
        response: Any = super().send(request, **options)
        # taken away: Azure's client would sleep for as long as it says, however long that is
        self._pace.learn(response.status_code, response.headers.pop("Retry-After", None))
        return response
