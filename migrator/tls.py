"""How clients of broker and stores use TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

from migrator.errors import ConfigError


def tls_context(
    section: str, *, ca_file: Path | None, cert_file: Path | None, key_file: Path | None
) -> ssl.SSLContext:
    """Trust *ca_file*, or the system's authorities; ``ConfigError`` names an unusable file."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as exc:
        raise ConfigError(f"{section}.ca_file {ca_file} cannot be used: {exc}") from exc
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file)
        except OSError as exc:
            raise ConfigError(
                f"{section}.cert_file {cert_file} with its key cannot be used: {exc}"
            ) from exc
    return context


def unused_tls_context() -> ssl.SSLContext:
    """Return a context that trusts no one, for ``http:``; loading the authorities takes 50 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
