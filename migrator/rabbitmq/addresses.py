"""Where the broker is: both connection string forms that NServiceBus systems have at hand.

An AMQP URI (``amqp://user:pass@host:port/vhost``), or the transport's ``host=…;username=…``
list. Every problem of a string is reported at once, and never the password.
Source: reference ``native-delays.md`` section 10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from migrator.errors import ConfigError

_AMQP_PORT: Final = 5672
_AMQPS_PORT: Final = 5671
_MAX_PORT: Final = 65_535
_SCHEMES: Final = {"amqp": False, "amqps": True}
_LOOKS_LIKE_URI: Final = re.compile(r"amqp|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_KNOWN: Final = frozenset({"host", "port", "virtualhost", "username", "password", "usetls"})
_WITHOUT_EFFECT: Final = frozenset(
    {
        "requestedheartbeat",
        "retrydelay",
        "dequeuetimeout",
        "prefetchcount",
        "usepublisherconfirms",
        "maxwaittimeforconfirms",
        "certpath",
        "certpassphrase",
    }
)
"""Settings of old transports that prevent nothing; for TLS the files of ``broker.tls`` count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """One virtual host of one broker, and who we are there."""

    host: str
    port: int
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    use_tls: bool = False

    def __str__(self) -> str:
        """Return the address without the password, for messages."""
        scheme = "amqps" if self.use_tls else "amqp"
        return f"{scheme}://{self.user}@{self.host_port}, virtual host {self.vhost!r}"

    @property
    def host_port(self) -> str:
        """The node alone: ``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> BrokerAddress:
    """Return the address that *text* names, in either form.

    Raises:
        ConfigError: Names every problem of the string; never quotes the password.
    """
    text = text.strip()
    if _LOOKS_LIKE_URI.match(text):
        return _parse_uri(text)
    return _parse_pairs(text)


def parse_addresses(text: str) -> tuple[BrokerAddress, ...]:
    """Return the addresses that *text* lists, one per line: nodes of one cluster.

    Raises:
        ConfigError: As for one address; or they name several virtual hosts, or none is named.
    """
    nodes = tuple(map(parse_address, text.split("\n")))
    vhosts = sorted({node.vhost for node in nodes})
    if len(vhosts) > 1:
        named = ", ".join(map(repr, vhosts))
        raise ConfigError(
            f"broker.url lists the nodes of one cluster, but names {len(vhosts)} virtual hosts "
            f"({named}): give each node the same"
        )
    return nodes


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError(f"the broker's connection string is wrong: {'; '.join(problems)}")


# ── the URI form ────────────────────────────────────────────────────────────────────────────


def _parse_uri(text: str) -> BrokerAddress:
    problems: list[str] = []
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        _refuse(["it must start with amqp:// or amqps://"])
    use_tls = _SCHEMES[scheme.lower()]
    authority, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    user_info, at, host_port = authority.rpartition("@")
    if user_info.count(":") > 1:
        problems.append("there is more than one ':' before the '@'; write that one as %3A")
    user, colon, secret = user_info.partition(":")
    user = _decoded(user, "the user name", problems) or "guest"
    password = _decoded(secret, "the password", problems) if colon else "guest"
    host, port = _host_port(host_port, _AMQPS_PORT if use_tls else _AMQP_PORT, problems)
    if not at and "@" in rest:
        problems.append("before the '@', write '/', '?' and '#' as %2F, %3F and %23")
    if "/" in path:
        problems.append("the path has more than one segment; write / in a virtual host as %2F")
    vhost = _decoded(path, "the virtual host", problems) if slash and path else "/"
    _refuse(problems)
    return BrokerAddress(
        host=host, port=port, vhost=vhost, user=user, password=password, use_tls=use_tls
    )


def _decoded(text: str, what: str, problems: list[str]) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        problems.append(f"{what} has a '%' that is not followed by two hex digits")
        return ""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:  # also of half a character, as bytes of an environment become
        problems.append(f"{what} is not UTF-8 after decoding its %XX")
        return ""


def _host_port(text: str, default_port: int, problems: list[str]) -> tuple[str, int]:
    """Split ``host``, ``host:port`` or ``[v6]:port``."""
    found = re.fullmatch(r"\[([0-9A-Fa-f:.%]+)\](?::([^:]*))?|([^:\[\]]*)(?::([^:]*))?", text)
    if found is None:
        problems.append("host and port cannot be read; write an IPv6 address in [ ]")
        return "", default_port
    host = found[1] or found[3] or ""
    port_text = found[2] or found[4]
    if "," in host:
        problems.append(
            "an address names one host; give each node of a cluster an address of its own"
        )
    elif not host or re.search(r"\s", host):
        problems.append("the host is missing or contains spaces")
    return host, default_port if port_text is None else _port(port_text, default_port, problems)


def _port(text: str, default_port: int, problems: list[str]) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) <= _MAX_PORT:
        # not quoted: after an unescaped '/' in a password this is a part of it
        problems.append(f"the port is not a number from 1 to {_MAX_PORT}")
        return default_port
    return int(text)


# ── the transport's own form ────────────────────────────────────────────────────────────────


def _parse_pairs(text: str) -> BrokerAddress:
    problems: list[str] = []
    pairs = _pairs(text, problems)
    problems += [
        f"unknown key {key[:40]!r}" for key in pairs if key not in _KNOWN | _WITHOUT_EFFECT
    ]
    use_tls = pairs.get("usetls", "false").lower() == "true"
    if pairs.get("usetls", "false").lower() not in ("true", "false"):
        problems.append("useTls is neither true nor false")
    port = _AMQPS_PORT if use_tls else _AMQP_PORT
    if "port" in pairs:
        port = _port(pairs["port"], port, problems)
    if "host" not in pairs:
        problems.append("host=… is missing")
    host, port = _host_port(pairs.get("host", "absent"), port, problems)
    _refuse(problems)
    return BrokerAddress(
        host=host,
        port=port,
        vhost=pairs.get("virtualhost", "/"),
        user=pairs.get("username", "guest"),
        password=pairs.get("password", "guest"),
        use_tls=use_tls,
    )


_ITEM: Final = re.compile(
    r"""([^=;]*)=(?:\s*("(?:[^"]|"")*+"|'(?:[^']|'')*+')\s*(?:;|\Z)|([^;]*)(?:;|\Z))"""
)
"""Blanks round a key and a value are cut off later: each repetition must have one way to match."""


def _pairs(text: str, problems: list[str]) -> dict[str, str]:
    """Split ``key=value;…``; values may be quoted, as in any .NET connection string."""
    pairs: dict[str, str] = {}
    position = 0
    text = text.rstrip("; \t\r\n")
    while position < len(text):
        found = _ITEM.match(text, position)
        key = "" if found is None else found[1].strip().lower()
        if found is None or not key:
            problems.append(f"character {position + 1} does not begin a key=value pair")
            return pairs
        position = found.end()
        value = _unquoted((found[2] or found[3]).strip())
        if key in pairs:
            problems.append(f"{key} is given twice")
        elif value:  # the .NET reader drops a key without a value
            pairs[key] = value
    return pairs


def _unquoted(value: str) -> str:
    for quote in ('"', "'"):
        if len(value) > 1 and value[0] == quote == value[-1]:
            return value[1:-1].replace(quote * 2, quote)
    return value
