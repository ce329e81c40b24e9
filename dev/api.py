"""Asking a private server's HTTP API."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any

from dev.processes import LOOPBACK, PATIENCE_S, ServerFailedError


def ask(
    port: int,
    method: str,
    path: str,
    body: object = None,
    *,
    login: str = "",
    tls: ssl.SSLContext | None = None,
    host: str = LOOPBACK,
) -> Any:
    """Return the decoded answer; None: it is empty.

    Args:
        port: Where the server listens.
        method: As HTTP has it.
        path: With its first slash.
        body: Sent as JSON; None: nothing is.
        login: ``user:password``; empty: none is given.
        tls: Whom to trust and who we are; None: it is plain HTTP.
        host: Where the server is.

    Raises:
        ServerFailedError: The server refused; says what it answered.
    """
    headers = {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    connection = (
        http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        if tls is None
        else http.client.HTTPSConnection(host, port, timeout=PATIENCE_S, context=tls)
    )
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise ServerFailedError(f"{method} {path}: {answer.status} {text.decode()[:2000]}")
    return json.loads(text) if text else None
