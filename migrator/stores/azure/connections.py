"""Connections to one server, kept between requests; several threads may use them.

Straight to a server the standard library's client is used, which takes half the processor time of
urllib3, and a timeout takes several requests. Behind a proxy it is urllib3, which knows all kinds.

Rules of this file: what goes wrong on the way is an ``UnansweredError`` and nothing is repeated;
certificates and proxies of the environment are respected as ``requests`` does it.
"""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util.wait import wait_for_read

_CONNECT_S: Final = 10
_READ_S: Final = 30


class UnansweredError(Exception):
    """There was no whole answer; the request may have been done. Says what went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the service answered."""

    status: int
    headers: Mapping[str, str]
    """By any case."""
    body: bytes | None
    """None: it was too large, and was not read."""


class Connections:
    """Straight to a server."""

    def __init__(self, base: str, connections: int) -> None:
        """Connect to *base*, such as ``https://host:10000``, when first asked.

        As many as *connections* are kept.
        """
        parts = urlsplit(base)
        self._where = parts.hostname or "", parts.port
        self._context = _trusting() if parts.scheme == "https" else None
        self._kept = deque[HTTPConnection]()
        self._most = connections

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        most: int | None,
    ) -> Answer:
        """Return the answer to a request; one of more than *most* bytes without its body.

        Raises:
            UnansweredError: See there.
        """
        connection = self._kept_one() or self._new()
        try:
            if connection.sock is None:
                connection.connect()
                sock: Any = connection.sock
                sock.settimeout(_READ_S)
            connection.request(method, target, body, dict(headers))
            found = connection.getresponse()
            is_read = most is None or (found.length or 0) <= most
            answer = _answer(found, found.read() if is_read else None)
        except (OSError, HTTPException) as exc:
            connection.close()
            raise UnansweredError(type(exc).__name__) from exc
        except BaseException:
            connection.close()
            raise
        if is_read and connection.sock is not None and len(self._kept) < self._most:
            self._kept.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close all that are kept."""
        while self._kept:
            self._kept.pop().close()

    def _kept_one(self) -> HTTPConnection | None:
        """Return one that is kept and that the server has not closed meanwhile."""
        while self._kept:
            try:
                kept = self._kept.pop()
            except IndexError:  # another thread took the last one
                return None
            if not wait_for_read(kept.sock, timeout=0.0):
                return kept
            kept.close()
        return None

    def _new(self) -> HTTPConnection:
        host, port = self._where
        if self._context is None:
            return HTTPConnection(host, port, timeout=_CONNECT_S)
        return HTTPSConnection(host, port, timeout=_CONNECT_S, context=self._context)


class ProxiedConnections:
    """By way of a proxy; as ``Connections``."""

    def __init__(self, base: str, proxy: str, connections: int) -> None:
        """Connect when first asked."""
        self._base = base
        tls = {"cert_reqs": "CERT_REQUIRED", "ca_certs": str(_authorities())}
        self._pool = HTTPAdapter(pool_maxsize=connections).proxy_manager_for(
            proxy, **(tls if base.startswith("https:") else {})
        )

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        most: int | None,
    ) -> Answer:
        """See ``Connections``."""
        try:
            found = self._pool.urlopen(
                method,
                self._base + target,
                body=body,
                headers=dict(headers),
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
                retries=False,
                redirect=False,
                preload_content=most is None,
                decode_content=False,
            )
            if most is None:
                return _answer(found, found.data)
            if int(found.headers.get("Content-Length", "0")) > most:
                found.close()
                return _answer(found, None)
            body = found.read(decode_content=False)
            found.release_conn()
        except urllib3.exceptions.HTTPError as exc:
            raise UnansweredError(type(exc).__name__) from exc
        return _answer(found, body)

    def close(self) -> None:
        """Close all."""
        self._pool.clear()


def connections_to(base: str, most: int) -> Connections | ProxiedConnections:
    """Return what connects to *base* in this environment, and keeps up to *most* connections."""
    proxy = requests.utils.select_proxy(base, requests.utils.get_environ_proxies(base))
    return Connections(base, most) if proxy is None else ProxiedConnections(base, proxy, most)


def _answer(found: HTTPResponse | urllib3.BaseHTTPResponse, body: bytes | None) -> Answer:
    headers = cast("Mapping[str, str]", found.headers)
    return Answer(status=found.status, headers=headers, body=body)


def _authorities() -> Path:
    given = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return Path(given or requests.utils.DEFAULT_CA_BUNDLE_PATH)


def _trusting() -> ssl.SSLContext:
    found = _authorities()
    is_folder = found.is_dir()
    return ssl.create_default_context(
        cafile=None if is_folder else str(found), capath=str(found) if is_folder else None
    )
