"""May we make the queues that staging and retries need? Asked of the broker, making none.

Without that right a daemon would claim rows and then begin again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.domain.states import Mode
from migrator.ports import BrokerFacts

NAME: Final = "broker-rights"
_SUBJECT: Final = "broker user"


def check(
    broker: BrokerFacts,
    *,
    mode: Mode | None,
    own_queues: Sequence[str],
    retry_queues: Sequence[str] = (),
) -> Iterator[Finding]:
    """Refuse ``staged``, and retries, for a user who may not configure our own queues.

    Args:
        broker: Whom to ask.
        mode: How batches are handed over; None: no endpoint is migrated.
        own_queues: Those of staging.
        retry_queues: Those of retries.
    """
    if mode is not None:
        yield from _staging(broker, mode, own_queues)
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
