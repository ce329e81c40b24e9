"""Can this broker do what was chosen?

Version 2 of the delays, and staging whatever the version of the delays, need quorum queues with
at-least-once dead-lettering; retries need quorum queues in which messages expire. All of that
came with 3.10. Source: reference ``native-delays.md`` section 6, design 5.2 and 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.errors import NotChecked
from migrator.ledger.states import Mode
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts, BrokerServer

NAME: Final = "broker-version"
OLDEST: Final = (3, 10, 0)
UNREADABLE: Final = (0, 0, 0)
FLAGS: Final = ("quorum_queue", "stream_queue")
_OLD_WAY: Final = "use --delays v1 --mode direct"


def check(
    broker: BrokerFacts,
    *,
    version: DelaysVersion | None,
    mode: Mode | None,
    has_retries: bool = False,
) -> Iterator[Finding]:
    """Refuse a broker that is too old, or whose feature flags are off, for what was chosen.

    Args:
        broker: Whom to ask.
        version: Generation of the delays; None: nothing enters them.
        mode: How batches are handed over; None: no endpoint is migrated.
        has_retries: Whether messages that fail wait in retry queues.
    """
    needs = [f"delays {version}"] if version is DelaysVersion.V2 else []
    needs += [f"mode {mode}"] if mode is Mode.STAGED else []
    needs += ["dispatch.retry_delays"] if has_retries else []
    server = broker.server()
    if not needs:
        chosen = [f"delays {version}"] if version is not None else []
        chosen += [f"mode {mode}"] if mode is not None else []
        yield _ok(server, f"any version will do for {' in '.join(chosen) or 'a dispatcher'}")
        return
    wanted = " and ".join(needs)
    if server.version == UNREADABLE:
        yield Finding(
            check=NAME,
            level=Level.NOT_CHECKED,
            subject=f"{server.product} {server.version_text}",
            text=f"its version cannot be read; {wanted} need 3.10 or newer",
        )
        return
    if server.version < OLDEST:
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=f"{server.product} {server.version_text}",
            text=f"{wanted} need version 3.10 or newer",
            remedy="upgrade the broker, or "
            + ("set dispatch.retry_delays = []" if len(needs) == has_retries else _OLD_WAY),
        )
        return
    yield from _flags(server, wanted)


def _flags(server: BrokerServer, wanted: str) -> Iterator[Finding]:
    if isinstance(server.flags, NotChecked):
        yield Finding(
            check=NAME, level=Level.NOT_CHECKED, subject="feature flags", text=server.flags.reason
        )
        return
    # a flag that a newer broker no longer lists has become part of it
    off = [flag for flag in FLAGS if server.flags.get(flag) is False]
    for flag in off:
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=f"feature flag {flag}",
            text=f"it is not enabled, but {wanted} need it",
            remedy=f"rabbitmqctl enable_feature_flag {flag}",
        )
    if not off:
        yield _ok(server, f"fit for {wanted}")


def _ok(server: BrokerServer, text: str) -> Finding:
    subject = f"{server.product} {server.version_text}"
    return Finding(check=NAME, level=Level.OK, subject=subject, text=text)
