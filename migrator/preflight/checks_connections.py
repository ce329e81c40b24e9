"""The check of what others on the network can read or take the place of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from migrator.preflight.context import Context, Finding, ok, warning


class Protection(IntEnum):
    """How a connection to another machine is protected."""

    NONE = 0
    ENCRYPTED = 1
    """The certificate is not verified."""
    VERIFIED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """One server on another machine."""

    subject: str
    """As a finding names it: ``store``, ``ledger``, ``broker``, ``management API``."""
    host: str
    protection: Protection
    remedy: str
    """What makes it ``VERIFIED``."""


def encryption(context: Context) -> Iterator[Finding]:
    """Can others on the network read passwords and timeouts, or take a server's place?

    Warn of connections to other machines without TLS, or whose certificate is not verified.
    """
    if not context.connections:
        yield ok("connections", "none to another machine is known")
    for each in context.connections:
        if each.protection is Protection.NONE:
            yield warning(
                each.subject,
                f"the connection to {each.host} is not encrypted, or only if the server wants it: "
                "anyone who can read the network can read the timeouts, and may get the password",
                each.remedy,
            )
        elif each.protection is Protection.ENCRYPTED:
            yield warning(
                each.subject,
                f"the certificate of {each.host} is not verified: another machine on the network "
                "can take its place, and gets the password",
                each.remedy,
            )
        else:
            yield ok(each.subject, f"encrypted, and the certificate of {each.host} is verified")
