"""Probes through the real delay levels into a queue of our own, and back.

Rules, because a probe without a queue to go to would hang in its level for ever and take one of
the 32 places that are there (reference ``native-delays.md`` section 5.3):

* the queue outlives us: it is not exclusive, and expires by itself a day after we are gone;
* it is removed only when every probe is back;
* its name ends in a word that nobody else has, so that no suffix of it is bound by anybody; a
  binding that would catch the probes all the same is looked for first, where the API tells.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pika

from migrator.delays.probe_results import Flight, Probe, catching_keys, probe_delay_s
from migrator.delays.routing import DelaysVersion, address, delivery_binding_key, delivery_exchange
from migrator.delays.topology import FindBindings, inspect_delays
from migrator.errors import PreflightRefused, TargetError
from migrator.nservicebus.headers import DELAY_IN_SECONDS, TIME_SENT
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import (
    PIKA_FAILURES,
    ConnectionSettings,
    closing_error,
    open_blocking,
)
from migrator.rabbitmq.names import PREFIX

_EXPIRES_MS: Final = 24 * 3600 * 1000
_LOOK_S: Final = 0.05


@dataclass(slots=True)
class _Nest:
    """Our queue, and what is known of the probes."""

    queue: QueueName
    channel: Any
    sent_s: dict[int, float] = field(default_factory=dict)
    """When each probe was sent, by level; monotonic."""
    back_s: dict[int, float] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return self.sent_s.keys() <= self.back_s.keys()


def fly(
    settings: ConnectionSettings,
    version: DelaysVersion,
    levels: Sequence[int],
    *,
    patience_s: float,
    find_bindings: FindBindings | None,
    guard: Callable[[], None] = lambda: None,
) -> Flight:
    """Send one probe through each of *levels*, wait for them, and return what came back.

    Args:
        settings: Where to.
        version: Through which generation.
        levels: Each once; each delay is below *patience_s*.
        patience_s: What is not back by then is lost.
        find_bindings: From the management API; None: nobody can tell who would listen in.
        guard: Called many times a second while probes are awaited; raises what breaks that off.

    Raises:
        PreflightRefused: The delays are not as they must be, or somebody else would get the
            probes. Nothing was sent.
        TargetError: The broker did not do what was asked. What was sent comes into our queue.
        Whatever *guard* raises: Our queue stays for what was sent, and removes itself.
    """
    if not inspect_delays(settings, version, find_bindings=find_bindings).is_usable:
        raise PreflightRefused(
            f"the delays {version} are not as they must be, so nothing was sent; "
            f"`migrator delays verify --delays {version}` says what is wrong"
        )
    patient = replace(settings, blocked_deadline_s=max(patience_s, 1.0))
    with _nest(patient, version) as nest:
        if find_bindings is not None:
            _refuse_listeners(version, nest.queue, find_bindings)
        deadline_s = time.monotonic() + patience_s
        for level in sorted(levels, reverse=True):
            _send(nest, version, level)
        _collect(nest, deadline_s, guard)
        is_left = not nest.is_complete
    return Flight(
        version=version,
        probes=tuple(_probe(nest, level) for level in sorted(levels)),
        left_queue=nest.queue if is_left else "",
    )


def are_back(settings: ConnectionSettings, flight: Flight) -> bool:
    """Return whether the lost probes of *flight* are in their queue now; it is removed then.

    True as well when the queue is gone. Looking makes its day begin anew.

    Raises:
        TargetError: The broker cannot be asked, or does not remove the queue.
    """
    with admin_session(settings, purpose="look for lost probes") as admin:
        found = admin.queue(flight.left_queue)
        if found is not None and found.ready < flight.lost:
            return False
        if found is not None:
            admin.delete_queue(flight.left_queue, if_empty=False)
        return True


@contextlib.contextmanager
def _nest(settings: ConnectionSettings, version: DelaysVersion) -> Iterator[_Nest]:
    """Make our queue; remove it at the end, unless a probe is still under way."""
    connection = open_blocking(settings, "migrator canary")
    queue = QueueName(f"{PREFIX}canary.{secrets.token_hex(12)}")
    try:
        nest = _Nest(queue=queue, channel=connection.channel())
        try:
            nest.channel.confirm_delivery()
            arguments = {"x-queue-type": "classic", "x-expires": _EXPIRES_MS}
            nest.channel.queue_declare(queue, durable=True, arguments=arguments)
            key = delivery_binding_key(queue)
            nest.channel.queue_bind(queue, delivery_exchange(version), key)
            yield nest
        finally:
            if nest.is_complete and nest.channel.is_open:
                nest.channel.queue_delete(queue)
    except PIKA_FAILURES as exc:
        raise closing_error(exc, settings.address) from exc
    finally:
        with contextlib.suppress(*PIKA_FAILURES):
            connection.close()


def _refuse_listeners(
    version: DelaysVersion, queue: QueueName, find_bindings: FindBindings
) -> None:
    """Refuse when a binding of somebody else would match the keys of our probes.

    All of them end alike, and what comes before the name is digits, so one key stands for all.
    """
    delivery = delivery_exchange(version)
    targets = {b.key: b.target.name for b in find_bindings(delivery) if b.target.name != queue}
    found = catching_keys(targets, address(version, 1, queue).routing_key)
    if found:
        listed = ", ".join(f"{targets[key]} ({key})" for key in found)
        raise PreflightRefused(
            f"nothing was sent: exchange {delivery} would give the probes to others as well: "
            f"{listed}"
        )


def _send(nest: _Nest, version: DelaysVersion, level: int) -> None:
    delay_s = probe_delay_s(level)
    where = address(version, delay_s, nest.queue)
    properties = pika.BasicProperties(
        message_id=_id(nest.queue, level),
        app_id="migrator-canary",
        delivery_mode=2,
        headers={TIME_SENT: build_wire_time(datetime.now(UTC)), DELAY_IN_SECONDS: delay_s},
    )
    nest.sent_s[level] = time.monotonic()  # before it can have entered, so never too favourable
    try:
        nest.channel.basic_publish(
            where.exchange, where.routing_key, b"", properties, mandatory=True
        )
    except (pika.exceptions.UnroutableError, pika.exceptions.NackError) as exc:
        del nest.sent_s[level]
        raise TargetError(f"{where.exchange} did not take the probe of level {level}") from exc


def _collect(nest: _Nest, deadline_s: float, guard: Callable[[], None]) -> None:
    levels = {_id(nest.queue, level): level for level in nest.sent_s}
    for method, properties, _ in nest.channel.consume(nest.queue, inactivity_timeout=_LOOK_S):
        now_s = time.monotonic()
        if method is not None:
            nest.channel.basic_ack(method.delivery_tag)
            level = levels.get(properties.message_id)
            if level is not None:
                nest.back_s.setdefault(level, now_s)
        if nest.is_complete or now_s >= deadline_s:
            break
        guard()
    nest.channel.cancel()


def _probe(nest: _Nest, level: int) -> Probe:
    if level not in nest.back_s:
        return Probe(level=level, late_s=None)
    late_s = nest.back_s[level] - nest.sent_s[level] - probe_delay_s(level)
    return Probe(level=level, late_s=late_s)


def _id(queue: QueueName, level: int) -> str:
    return f"{queue}/{level}"
