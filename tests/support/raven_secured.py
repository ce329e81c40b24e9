"""A RavenDB that lets nobody in without a certificate that it knows."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, pkcs12
from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key
from cryptography.x509 import load_pem_x509_certificate as load_certificate

from dev.servers import RavenServer, ServerCertificate


@dataclass(frozen=True, slots=True)
class Client:
    """A certificate with its key, as PEM files."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SecuredRaven:
    """A server, and clients that may do more or less in one database of it."""

    server: RavenServer
    database: str
    ca: Path
    writer: Client
    neighbour: Client
    """May write in a database that is not there."""
    stranger: Client
    """Of the same authority, and unknown to the server."""


@contextmanager
def secured_raven(version: str, folder: Path) -> Iterator[SecuredRaven]:
    """Start a server with certificates in *folder*."""
    authority = trustme.CA()
    ca = folder / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    own = _issued(authority, folder, "server", "localhost", "127.0.0.1")
    pfx = folder / "server.pfx"
    pfx.write_bytes(_packed(own))
    certificate = ServerCertificate(ca=ca, cert=own.cert, key=own.key, pfx=pfx)
    clients = [
        _issued(authority, folder, name, f"{name}@migrator.test")
        for name in ("writer", "neighbour", "stranger")
    ]
    with RavenServer(version=version, certificate=certificate) as server:
        database = server.create_database()
        for client, name in zip(clients, (database, "elsewhere"), strict=False):
            server.api("PUT", "admin/certificates", _known(client, {name: "ReadWrite"}))
        yield SecuredRaven(server, database, ca, *clients)


def _issued(authority: trustme.CA, folder: Path, name: str, *identities: str) -> Client:
    leaf = authority.issue_cert(*identities, common_name=name, key_type=trustme.KeyType.RSA)
    client = Client(folder / f"{name}.pem", folder / f"{name}.key")
    client.cert.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(client.key)
    return client


def _packed(own: Client) -> bytes:
    key = load_key(own.key.read_bytes(), None)
    certificate = load_certificate(own.cert.read_bytes())
    return pkcs12.serialize_key_and_certificates(b"raven", key, certificate, None, NoEncryption())  # type: ignore[arg-type]  # an RSA key


def _known(client: Client, permissions: dict[str, str]) -> dict[str, object]:
    certificate = load_certificate(client.cert.read_bytes()).public_bytes(Encoding.DER)
    return {
        "Name": client.cert.stem,
        "Certificate": base64.b64encode(certificate).decode(),
        "SecurityClearance": "ValidUser",
        "Permissions": permissions,
    }
