"""A short connection for declaring, binding and looking things up; one thread, then closed.

Rule: an answer of *no* closes the channel, never the session; the next call opens another one. So
does a queue that answers nothing: the broker keeps its channel waiting for it, and only that one.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pika

from migrator.errors import EntityMismatch, TargetError, TargetUnavailable
from migrator.rabbitmq.addresses import BrokerAddress
from migrator.rabbitmq.connection import (
    PIKA_FAILURES,
    ConnectionSettings,
    EntityAbsent,
    NoAnswer,
    closing_error,
    opening_error,
    pika_parameters,
)
from migrator.rabbitmq.entities import Binding, QueueFacts, ServerFacts, queue_entity
from migrator.rabbitmq.event_loop import PikaConnection

T = TypeVar("T")

_NAME_BYTES: Final = 255
_LINE_ENDS: Final = frozenset("\r\n")
_ALTERNATE: Final = "alternate-exchange"
_OTHER_KIND: Final = re.compile(r"inequivalent arg 'type'.* current is '([^']*)'")
ANSWER_S: Final = 1.0
"""A queue that has not answered by then is asked no further."""
_NEXT_ANSWER_S: Final = 0.25
"""The same for others, once one did not answer: many together must not take many seconds."""


class AdminSession:
    """Calls on one blocking connection.

    Every method raises ``TargetError``'s kinds:

    ``AccessRefused`` (a permission is missing), ``EntityMismatch`` (exists with other arguments),
    ``EntityAbsent`` (something named does not exist), ``TargetUnavailable`` (no answer), and its
    kind ``NoAnswer`` (of a queue alone).
    """

    def __init__(self, connection: Any, settings: ConnectionSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._channel: Any = None
        self._confirming: Any = None
        self._is_stuck = False
        """A channel waits for an answer that may never come."""

    def server_facts(self) -> ServerFacts:
        """Return what the broker says about itself."""
        inner = self._connection._impl  # pika shows neither of the two
        told = inner.server_properties or {}
        return ServerFacts(
            product=_text(told.get("product")),
            version=_text(told.get("version")),
            cluster_name=_text(told.get("cluster_name")),
            frame_max_bytes=int(inner.params.frame_max),
        )

    def declare_exchange(self, name: str, kind: str) -> None:
        """Declare a durable exchange; nothing happens when it is there already."""
        self.call(lambda channel: channel.exchange_declare(name, kind, durable=True))

    def declare_queue(self, name: str, arguments: Mapping[str, object]) -> QueueFacts:
        """Declare a durable queue; nothing happens when it is there already."""
        given = dict(arguments)
        return _facts(self.call(lambda ch: ch.queue_declare(name, durable=True, arguments=given)))

    def bind(self, binding: Binding) -> None:
        """Make *binding*, arguments too; repeating is harmless."""
        ends = binding.target.name, binding.source, binding.key, dict(binding.arguments)
        is_queue = binding.target_is_queue
        self.call(lambda ch: ch.queue_bind(*ends) if is_queue else ch.exchange_bind(*ends))

    def bind_queue(
        self, source: str, queue: str, key: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        """Bind a queue to an exchange; repeating is harmless."""
        target = queue_entity(queue)
        self.bind(Binding(source=source, target=target, key=key, arguments=arguments or {}))

    def unbind(self, binding: Binding) -> None:
        """Cut *binding*; harmless where it, or an end of it, is not there."""
        ends = binding.target.name, binding.source, binding.key, dict(binding.arguments)
        is_queue = binding.target_is_queue
        self.call(lambda ch: ch.queue_unbind(*ends) if is_queue else ch.exchange_unbind(*ends))

    def delete_queue(self, name: str, *, if_empty: bool, if_unused: bool = False) -> None:
        """Delete a queue; repeating is harmless.

        A quorum queue takes neither condition: the broker closes the connection (measured, 3.10).
        """
        self.call(
            lambda channel: channel.queue_delete(name, if_unused=if_unused, if_empty=if_empty)
        )

    def delete_exchange(self, name: str, *, if_unused: bool = True) -> None:
        """Delete an exchange, unless something is bound from it; repeating is harmless."""
        self.call(lambda channel: channel.exchange_delete(name, if_unused=if_unused))

    def queue(self, name: str, *, answer_s: float = math.inf) -> QueueFacts | None:
        """Return what is known about a queue, or None when it does not exist; creates nothing.

        Raises:
            NoAnswer: It has not answered within *answer_s*, and the broker has.
        """
        if not can_exist(name):
            return None
        if self._is_stuck:
            answer_s = min(answer_s, _NEXT_ANSWER_S)
        try:
            return _facts(
                self.call(lambda channel: channel.queue_declare(name, passive=True), answer_s)
            )
        except EntityAbsent:
            return None
        except _TooLate:
            self._channel, self._is_stuck = None, True
        try:
            self.call(
                lambda channel: channel.exchange_declare("amq.fanout", passive=True), answer_s
            )
        except _TooLate as exc:
            self._channel = None
            address = self._settings.address
            raise TargetUnavailable(f"{address}: no answer within {answer_s:g} s") from exc
        raise NoAnswer(f"queue {name!r} has not answered within {answer_s:g} s")

    def find_exchange(self, name: str) -> bool:
        """Return whether an exchange exists; creates nothing."""
        if not can_exist(name):
            return False
        try:
            self.call(lambda channel: channel.exchange_declare(name, passive=True))
        except EntityAbsent:
            return False
        return True

    def exchange_kind(self, name: str, expected: str) -> str | None:
        """Return the type of an exchange if it is another one than *expected*; None: it is not.

        It declares what cannot be: the broker compares that with what exists, and makes nothing
        even if the exchange is gone by now.

        Raises:
            AccessRefused: It needs the permission to configure the exchange.
        """
        impossible = {_ALTERNATE: 0}
        try:
            self.call(
                lambda channel: channel.exchange_declare(
                    name, expected, durable=True, arguments=impossible
                )
            )
        except EntityMismatch as exc:
            found = _OTHER_KIND.search(str(exc))
            return None if found is None else found[1]
        except TargetError as exc:
            if type(exc) is not TargetError:
                raise
        return None

    @property
    def is_open(self) -> bool:
        """Whether the connection is still there."""
        return bool(self._connection.is_open)

    def publish(
        self,
        exchange: str,
        key: str,
        *,
        message_id: str,
        app_id: str,
        headers: Mapping[str, str | int],
    ) -> bool:
        """Publish an empty persistent message; return whether a queue took it."""
        properties = pika.BasicProperties(
            message_id=message_id, app_id=app_id, delivery_mode=2, headers=dict(headers)
        )
        try:
            if self._confirming is None:
                self._confirming = self._connection.channel()
                self._confirming.confirm_delivery()
            self._confirming.basic_publish(exchange, key, b"", properties, mandatory=True)
        except (pika.exceptions.UnroutableError, pika.exceptions.NackError):
            return False
        except PIKA_FAILURES as exc:
            raise closing_error(exc, self._settings.address) from exc
        return True

    def receive(
        self, queue: str, is_enough: Callable[[str | None], bool], *, look_s: float
    ) -> None:
        """Take messages from *queue*, each acknowledged, until *is_enough*.

        It is called with each message's id, and with None whenever none came for *look_s*. What it
        raises ends the consumer with the session.
        """

        def consume(channel: Any) -> None:
            for method, properties, _ in channel.consume(queue, inactivity_timeout=look_s):
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                if is_enough(None if method is None else properties.message_id):
                    break
            channel.cancel()

        self.call(consume)

    def call(self, work: Callable[[Any], T], answer_s: float = math.inf) -> T:
        """Return what *work* does with one of pika's channels.

        Raises:
            _TooLate: It has not ended within *answer_s*; the channel is still in it.
        """
        try:
            with self._deadline(answer_s):
                if self._channel is None or not self._channel.is_open:
                    self._channel = self._connection.channel()
                return work(self._channel)
        except PIKA_FAILURES as exc:
            raise closing_error(exc, self._settings.address) from exc

    @contextlib.contextmanager
    def _deadline(self, seconds: float) -> Iterator[None]:
        """End what waits for the broker after so long; only a timer within pika can."""
        if seconds == math.inf:
            yield
            return
        inner = self._connection._impl
        timer = inner._adapter_call_later(seconds, _raise_too_late)
        try:
            yield
        finally:
            inner._adapter_remove_timeout(timer)

    def close(self) -> None:
        """Close the connection; never raises. One that is stuck is dropped: it would wait, too."""
        with contextlib.suppress(*PIKA_FAILURES):
            if self._is_stuck:
                reason = pika.exceptions.ConnectionClosedByClient(320, "abandoned")
                self._connection._impl._terminate_stream(reason)
                self._connection._flush_output(self._connection._closed_result.is_ready)
            else:
                self._connection.close()


class _TooLate(Exception):
    """The broker took too long for an answer."""


def _raise_too_late() -> None:
    raise _TooLate


def can_exist(name: str) -> bool:
    """Return whether the broker could hold something of that name; strangers choose some of them.

    It drops line ends from a name it is asked about, and answers without them; pika waits for an
    answer that bears the name as it was asked, for ever. A name that cannot be sent at all leaves
    a channel that pika never gets closed.
    """
    try:
        return len(name.encode()) <= _NAME_BYTES and not _LINE_ENDS & {*name}
    except UnicodeEncodeError:  # half a character
        return False


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _facts(answer: Any) -> QueueFacts:
    method = answer.method
    return QueueFacts(
        name=str(method.queue),
        ready=int(method.message_count),
        consumers=int(method.consumer_count),
    )


@contextlib.contextmanager
def admin_session(settings: ConnectionSettings, *, purpose: str) -> Iterator[AdminSession]:
    """Open a short connection and close it afterwards.

    Raises:
        AccessRefused: Wrong user, password or virtual host.
        TargetUnavailable: The broker does not answer.
    """

    def connect(address: BrokerAddress) -> Any:
        try:
            parameters = pika_parameters(settings, address, f"migrator {purpose}")
            return pika.BlockingConnection(parameters, _impl_class=PikaConnection)
        except PIKA_FAILURES as exc:
            raise opening_error(exc, address) from exc

    connection = settings.try_nodes(connect)
    session = AdminSession(connection, settings)
    try:
        yield session
    finally:
        session.close()
