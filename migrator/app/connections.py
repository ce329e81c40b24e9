"""Which servers the settings name on other machines, and how the connections are protected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from migrator.config import Settings
from migrator.config.settings import is_loopback
from migrator.errors import ConfigError
from migrator.preflight.checks_connections import Connected, Protection
from migrator.rabbitmq.addresses import parse_addresses

_SSLMODES: Final = {
    "require": Protection.ENCRYPTED,
    "verify-ca": Protection.ENCRYPTED,  # any host with a certificate of that authority will do
    "verify-full": Protection.VERIFIED,
}
"""Of libpq; with the others, ``prefer`` among them, a server may do without TLS."""
_BY_TLS: Final = {
    (False, False): Protection.NONE,
    (False, True): Protection.NONE,
    (True, False): Protection.ENCRYPTED,
    (True, True): Protection.VERIFIED,
}
"""Whether there is TLS, and whether the certificate is verified."""


def connections(settings: Settings) -> Iterator[Connected]:
    """Yield the servers on other machines; a server whose driver decides by itself is left out."""
    for subject, secret in (("store", settings.store.url), ("ledger", settings.ledger.url)):
        if secret is not None and (found := _database(subject, secret)) is not None:
            yield found
    broker = settings.broker
    verifies = broker.tls.verify
    if broker.url is not None:
        try:
            nodes = parse_addresses(broker.url.get_secret_value())
        except ConfigError:  # the check that connects says so
            nodes = ()
        for node in nodes:
            if not is_loopback(node.host):
                yield Connected(
                    subject="broker",
                    host=node.host,
                    protection=_BY_TLS[node.use_tls, verifies],
                    remedy="use amqps:// in broker.url, and broker.tls.verify = true",
                )
    if broker.management_url is not None:
        for text in broker.management_url.get_secret_value().split("\n"):
            parts = urlsplit(text)
            if parts.hostname and not is_loopback(parts.hostname):
                yield Connected(
                    subject="management API",
                    host=parts.hostname,
                    protection=_BY_TLS[parts.scheme == "https", verifies],
                    remedy="use https:// in broker.management_url, and broker.tls.verify = true",
                )


def _database(subject: str, secret: SecretStr) -> Connected | None:
    try:
        url = make_url(secret.get_secret_value())
    except ArgumentError:  # of a document store, or the check that connects says so
        return None
    host = _text(url, "host") or url.host or ""
    if not host or host.startswith("/") or is_loopback(host) or url.query.get("unix_socket"):
        return None
    if url.get_backend_name() == "postgresql":
        protection = _SSLMODES.get(_text(url, "sslmode"), Protection.NONE)
        added = "sslmode=verify-full&sslrootcert=FILE"
    elif url.get_backend_name() in ("mysql", "mariadb"):
        protection = Protection.VERIFIED if url.query.get("ssl_ca") else Protection.NONE
        added = "ssl_ca=FILE"
    else:
        return None
    return Connected(
        subject=subject,
        host=host,
        protection=protection,
        remedy=f"add {'&' if url.query else '?'}{added} to {subject}.url",
    )


def _text(url: URL, name: str) -> str:
    found = url.query.get(name, "")
    return found if isinstance(found, str) else ",".join(found)
