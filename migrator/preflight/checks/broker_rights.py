"""May we make the queues that staging and retries need, and bind destinations to the delays?

Asked of the broker, making and binding none. Without these rights a daemon would claim rows and
then begin again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from migrator.delays.routing import DelaysVersion, delivery_exchange
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "broker-rights"
_SUBJECT: Final = "broker user"
_NAMED: Final = 3
"""Destinations named in a refusal; more are counted."""


def check(
    broker: BrokerFacts,
    *,
    mode: Mode | None,
    own_queues: Sequence[str],
    retry_queues: Sequence[str] = (),
    version: DelaysVersion = DelaysVersion.V2,
    bound: Collection[QueueName] = (),
) -> Iterator[Finding]:
    """Refuse a user who may not make our own queues, or may not bind destinations.

    Args:
        broker: Whom to ask.
        mode: How batches are handed over; None: no endpoint is migrated.
        own_queues: Those of staging.
        retry_queues: Those of retries.
        version: Generation of the delays.
        bound: Destinations that are ours to bind.
    """
    if mode is not None:
        yield from _staging(broker, mode, own_queues)
        yield from _binding(broker, version, bound)
    if retry_queues:
        yield from _asked(
            broker,
            retry_queues,
            whose="retries have",
            otherwise="set dispatch.retry_delays = []",
        )
    elif mode is None:
        yield _ok("nothing has to be made")


def _staging(broker: BrokerFacts, mode: Mode, own_queues: Sequence[str]) -> Iterator[Finding]:
    if mode is not Mode.STAGED:
        yield _ok(f"mode {mode} makes do with the native exchanges")
        return
    if not own_queues:
        yield Finding(
            check=NAME,
            level=Level.NOT_CHECKED,
            subject=_SUBJECT,
            text="without a ledger, the names of our queues are not known",
        )
        return
    yield from _asked(broker, own_queues, whose="mode staged has", otherwise="use --mode direct")


def _binding(
    broker: BrokerFacts, version: DelaysVersion, names: Collection[QueueName]
) -> Iterator[Finding]:
    if not names:
        return
    refused = broker.not_bindable(version, sorted(names))
    if not refused:
        yield _ok(f"may bind the {len(names)} destinations of the rows to the delays")
        return
    shown = [f"{name}: {text}" for name, text in sorted(refused.items())[:_NAMED]]
    shown += [f"and {len(refused) - _NAMED} more"] if len(refused) > _NAMED else []
    yield Finding(
        check=NAME,
        level=Level.REFUSED,
        subject=_SUBJECT,
        text=f"may not bind {len(refused)} of {len(names)} destinations: {'; '.join(shown)}",
        remedy=f"grant it `write` on each destination and `read` on {delivery_exchange(version)} "
        "(`migrator broker grants` prints the `rabbitmqctl set_permissions`), or, if all "
        "endpoints bind themselves, set broker.all_endpoints_support_delayed_delivery = true",
    )


def _asked(
    broker: BrokerFacts, names: Sequence[str], *, whose: str, otherwise: str
) -> Iterator[Finding]:
    refused = broker.not_configurable(names)
    for name, text in sorted(refused.items()):
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=name,
            text=f"{whose} to make it, and may not: {text}",
            remedy=f"let `migrator broker grants` print what the user needs, or {otherwise}",
        )
    if not refused:
        yield _ok(f"{whose} to make {len(names)} queues, and may")


def _ok(text: str) -> Finding:
    return Finding(check=NAME, level=Level.OK, subject=_SUBJECT, text=text)
