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
from migrator.database.engine import with_driver
from migrator.errors import ConfigError
from migrator.preflight.context import Connected, Protection
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import TlsFiles
from migrator.rabbitmq.management import management_settings

_SSLMODES: Final = {
    "require": Protection.ENCRYPTED,
    "verify-ca": Protection.ENCRYPTED,  # any host with a certificate of that authority will do
    "verify-full": Protection.VERIFIED,
}
"""Of libpq; with the others, ``prefer`` among them, a server may do without TLS."""


def connections(settings: Settings) -> Iterator[Connected]:
    """Yield the servers on other machines; a server whose driver decides by itself is left out."""
    for subject, secret in (("store", settings.store.url), ("ledger", settings.ledger.url)):
        if secret is not None and (found := _database(subject, secret)) is not None:
            yield found
    verifies = settings.broker.tls.verify
    for subject, host, uses_tls, remedy in _of_the_broker(settings):
        if not is_loopback(host):
            by_tls = Protection.VERIFIED if verifies else Protection.ENCRYPTED
            yield Connected(
                subject=subject,
                host=host,
                protection=by_tls if uses_tls else Protection.NONE,
                remedy=f"use {remedy}, and broker.tls.verify = true",
            )


def _of_the_broker(settings: Settings) -> Iterator[tuple[str, str, bool, str]]:
    """Yield its nodes and its management APIs: what it is, host, whether with TLS, and how."""
    broker = settings.broker
    if broker.url is None:
        return
    try:  # of an address that cannot be read the check that connects says so
        nodes = parse_addresses(broker.url.get_secret_value())
        urls = broker.management_url.get_secret_value().split("\n") if broker.management_url else []
        apis = [management_settings(nodes[0], each, TlsFiles()).url for each in urls]
    except ConfigError:
        return
    for node in nodes:
        yield "broker", node.host, node.use_tls, "amqps:// in broker.url"
    for api in map(urlsplit, apis):
        yield (
            "management API",
            api.hostname or "",
            api.scheme == "https",
            "https:// in broker.management_url",
        )


def _database(subject: str, secret: SecretStr) -> Connected | None:
    try:
        url = with_driver(make_url(secret.get_secret_value()))
    except ArgumentError:  # of a document store, or the check that connects says so
        return None
    host = _text(url, "host") or url.host or ""
    if not host or host.startswith("/") or is_loopback(host) or url.query.get("unix_socket"):
        return None
    if url.get_backend_name() == "postgresql":
        protection = _SSLMODES.get(_text(url, "sslmode"), Protection.NONE)
        added = "sslmode=verify-full&sslrootcert=FILE"
    elif url.get_backend_name() == "mysql":
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
