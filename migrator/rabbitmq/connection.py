"""How a connection is made, and what the broker means when it says no.

Three findings a person acts on differently are told apart here: no answer (network), the
answer is no (user, password, permission), and what was asked for is absent (virtual host).
Rule: a wire that is cut during the handshake looks to pika like a refused password; only the
broker's own words count as a refusal, everything else may be tried again.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pika
from pika import exceptions as pika_errors
from pika.adapters.utils import connection_workflow

from migrator import __version__
from migrator.errors import (
    AccessRefused,
    EntityMismatch,
    MessageTooLarge,
    TargetError,
    TargetUnavailable,
)
from migrator.rabbitmq.addresses import BrokerAddress
from migrator.tls import tls_context

N = TypeVar("N")
T = TypeVar("T")
_log: Final = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5
"""A lane's lease is longer than three of these, so the broker has dropped a dead owner by then."""
_ATTEMPT_TIMEOUT_S: Final = 10.0

_REFUSED, _NOT_FOUND, _LOCKED, _PRECONDITION = 403, 404, 405, 406
_CONTENT_TOO_LARGE, _NOT_ALLOWED, _NOT_IMPLEMENTED = 311, 530, 540

PIKA_FAILURES: Final = (
    pika_errors.AMQPError,
    pika_errors.ChannelError,
    connection_workflow.AMQPConnectorException,
    OSError,
)
"""What pika raises for anything that can happen to a connection."""


class EntityAbsent(TargetError):
    """A queue, exchange or virtual host that was named does not exist."""


class EntityLocked(TargetUnavailable):
    """Another connection holds a queue exclusively; trying again later may help."""


class NoAnswer(TargetUnavailable):
    """One queue answers nothing, while the broker answers other questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """What TLS needs beyond ``amqps://``."""

    ca_file: Path | None = None
    """None: the system's authorities."""
    cert_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True


@dataclass(slots=True)
class LastUsed:
    """Which of several nodes answered last; all connections of the same settings share it."""

    index: int = 0
    is_told: bool = False
    """Whether the log names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Where to connect, and how patiently."""

    nodes: tuple[BrokerAddress, ...]
    """One virtual host on the nodes of one cluster; the first that answers is taken."""
    tls: TlsFiles = TlsFiles()
    blocked_deadline_s: float = 300.0
    """A broker that blocks us longer (memory or disk alarm) is given up."""
    prefetch_bytes: int = 64 * 2**20
    """Bytes of received messages in memory at a time, and one message more, for a connection."""
    last_used: LastUsed = field(default_factory=LastUsed, compare=False, repr=False)

    @property
    def address(self) -> BrokerAddress:
        """The node that answered last; the first one as long as none did."""
        return self.nodes[self.last_used.index]

    def beginning_with(self, number: int) -> ConnectionSettings:
        """Return settings that try the nodes from the one of that number on, counted round.

        So connections that are numbered spread over all nodes.
        """
        first = number % len(self.nodes)
        nodes = (*self.nodes[first:], *self.nodes[:first])
        return replace(self, nodes=nodes, last_used=LastUsed())

    def try_nodes(self, connect: Callable[[BrokerAddress], T]) -> T:
        """Return what *connect* does with the first node that answers: the last one used first.

        Raises:
            AccessRefused: User, password or virtual host; the other nodes have the same.
            TargetUnavailable: No node answers; says why of each.
        """
        failures: list[TargetUnavailable] = []
        index, connected = try_each(self.nodes, self.last_used.index, connect, failures)
        self._note(index, failures)
        return connected

    def _note(self, index: int, failures: list[TargetUnavailable]) -> None:
        """Remember the node that answered; the log names it when it is another one."""
        if len(self.nodes) > 1 and not (self.last_used.is_told and index == self.last_used.index):
            extra = {"action": "broker_node", "node": self.nodes[index].host_port}
            if failures:
                extra["error"] = str(failures[0])
            _log.info("connected to a node of the broker", extra=extra)
        self.last_used.index, self.last_used.is_told = index, True


def try_each(
    nodes: Sequence[N], first: int, ask: Callable[[N], T], failures: list[TargetUnavailable]
) -> tuple[int, T]:
    """Return which of *nodes* answered *ask*, and what; what others failed with is added.

    Raises:
        TargetUnavailable: None answers; says why of each.
    """
    for turn in range(len(nodes)):
        index = (first + turn) % len(nodes)
        try:
            return index, ask(nodes[index])
        except TargetUnavailable as exc:
            failures.append(exc)
    if len(failures) == 1:
        raise failures[0]
    said = "; ".join(map(str, failures))
    raise TargetUnavailable(f"none of {len(failures)} nodes can be reached: {said}")


def pika_parameters(settings: ConnectionSettings, address: BrokerAddress, name: str) -> Any:
    """Return pika's parameters for a connection to one node that the broker shows as *name*.

    Raises:
        ConfigError: A TLS file cannot be used; says which.
    """
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password),
        ssl_options=pika.SSLOptions(broker_tls_context(settings.tls), address.host)
        if address.use_tls
        else None,
        heartbeat=HEARTBEAT_S,
        blocked_connection_timeout=settings.blocked_deadline_s,
        socket_timeout=_ATTEMPT_TIMEOUT_S,
        stack_timeout=1.5 * _ATTEMPT_TIMEOUT_S,
        connection_attempts=1,
        client_properties={
            "product": "migrator",
            "version": __version__,
            "connection_name": name,
            "information": f"moves NServiceBus timeouts (pika {pika.__version__})",
        },
    )


def broker_tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """Return what both the broker's and the management API's connections use.

    Raises:
        ConfigError: A file cannot be used; says which.
    """
    context = tls_context(
        "broker.tls", ca_file=tls.ca_file, cert_file=tls.cert_file, key_file=tls.key_file
    )
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# ── what the broker, or the network, said ───────────────────────────────────────────────────


_TOO_LARGE: Final = re.compile(r"larger than (?:configured )?max size (\d+)")


def opening_error(error: BaseException, address: BrokerAddress) -> TargetError:
    """Return what it means that the connection to *address* could not be opened."""
    texts = [str(found) for found in _causes(error)]
    said = " ".join((*texts, *(repr(found) for found in _causes(error))))
    if "ACCESS_REFUSED" in said or "(403)" in said:
        return AccessRefused(f"{address}: the broker refused user {address.user!r} or its password")
    if "(530)" in said and "not found" in said:
        return AccessRefused(f"{address}: the broker has no virtual host {address.vhost!r}")
    if "(530)" in said and "limit" not in said and "is down" not in said:
        return AccessRefused(
            f"{address}: user {address.user!r} may not access virtual host {address.vhost!r}"
        )
    for found in _causes(error):
        if isinstance(found, ssl.SSLCertVerificationError):
            return TargetError(f"{address}: the broker's certificate was not accepted: {found}")
    return TargetUnavailable(f"{address}: cannot be reached: {_innermost(error)}")


def closing_error(error: BaseException | None, address: BrokerAddress) -> TargetError:
    """Return what it means that an open connection or channel was closed."""
    if isinstance(error, pika_errors.ConnectionBlockedTimeout):
        return TargetUnavailable(
            f"{address}: the broker blocked this connection past the deadline (alarm)"
        )
    if isinstance(error, (pika_errors.ChannelClosedByBroker, pika_errors.ConnectionClosedByBroker)):
        return _refusal(error.reply_code, error.reply_text, address)
    reason = "closed" if error is None else _innermost(error)
    return TargetUnavailable(f"{address}: the connection was lost: {reason}")


def _refusal(code: int, text: str, address: BrokerAddress) -> TargetError:
    message = f"{address}: the broker says: {text}"
    if code == _REFUSED:
        return AccessRefused(message)
    if code == _LOCKED:
        return EntityLocked(message)
    if code == _NOT_FOUND and "is down" not in text:
        return EntityAbsent(message)
    if code == _PRECONDITION and "inequivalent" in text:
        return EntityMismatch(message)
    if code == _PRECONDITION and (found := _TOO_LARGE.search(text)):
        return MessageTooLarge(message, int(found[1]))
    if code in (_PRECONDITION, _CONTENT_TOO_LARGE, _NOT_ALLOWED, _NOT_IMPLEMENTED):
        return TargetError(message)
    return TargetUnavailable(message)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and everything pika wrapped into it."""
    seen = [error]
    for found in seen:  # grows while it is walked
        nested = [*found.args, *getattr(found, "exceptions", ()), getattr(found, "exception", None)]
        seen += [
            item
            for item in (*nested, found.__cause__)
            if isinstance(item, BaseException) and not any(item is known for known in seen)
        ]
    yield from seen


def _innermost(error: BaseException) -> str:
    """Return the most telling text: the operating system's, if there is one."""
    found = list(_causes(error))
    system = [item for item in found if isinstance(item, OSError)]
    chosen = (system or found)[-1]
    return str(chosen) or type(chosen).__name__
