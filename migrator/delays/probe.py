"""Probes through the real delay levels into a queue of our own, and back: how late are they?

A probe of level *n* waits exactly 2ⁿ seconds, in that level alone, and then passes all levels
below it.

Rules, because a probe without a queue to go to would hang in its level for ever and take one of
the 32 places that are there (reference ``native-delays.md`` section 5.3):

* the queue outlives us: it is not exclusive, and expires by itself a day after we are gone;
* it is removed only when every probe is back;
* its name ends in a word that nobody else has, so that no suffix of it is bound by anybody; a
  binding that would catch the probes all the same is looked for first, where the API tells.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from migrator.delays.routing import (
    DelaysVersion,
    address,
    delivery_binding_key,
    delivery_exchange,
    probe_delay_s,
)
from migrator.delays.topology import FindBindings, inspect_delays
from migrator.errors import MigratorError, PreflightRefused, TargetError
from migrator.nservicebus.headers import DELAY_IN_SECONDS, TIME_SENT
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.names import PREFIX

_CLOCK_STEP_S: Final = 0.01
"""The broker counts milliseconds and may cut them; less than this is no earliness."""

_EXPIRES_MS: Final = 24 * 3600 * 1000
_LOOK_S: Final = 0.05


class Arrival(StrEnum):
    """How a probe came back."""

    ON_TIME = "on_time"
    """When its time was over; how late says the probe."""
    EARLY = "early"
    LOST = "lost"
    """Not within the timeout; it may still come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTrip:
    """One probe, once it is back or lost."""

    level: int
    late_s: float | None
    """Seconds after its time, negative: before; None: it did not come."""

    @property
    def delay_s(self) -> int:
        """Seconds that it had to wait."""
        return probe_delay_s(self.level)

    @property
    def arrival(self) -> Arrival:
        """How it came back."""
        if self.late_s is None:
            return Arrival.LOST
        return Arrival.EARLY if self.late_s < -_CLOCK_STEP_S else Arrival.ON_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun:
    """All probes of one call, lowest level first."""

    version: DelaysVersion
    probes: tuple[ProbeTrip, ...]
    left_queue: str = ""
    """Our queue, which waits for probes that are lost; empty: it was removed."""

    @property
    def is_fine(self) -> bool:
        """Whether every probe came back, and none too early."""
        return all(probe.arrival is Arrival.ON_TIME for probe in self.probes)

    def late_levels(self, *, after_s: float) -> Sequence[int]:
        """Return the levels whose probe is lost, was early, or came more than *after_s* late."""
        return [
            probe.level
            for probe in self.probes
            if probe.arrival is not Arrival.ON_TIME or (probe.late_s or 0.0) > after_s
        ]

    @property
    def lost(self) -> int:
        """How many probes did not come back."""
        return sum(probe.arrival is Arrival.LOST for probe in self.probes)


def probes_text(run: ProbeRun, late_levels: Collection[int]) -> str:
    """Return in a line what came of *run*: ``levels 0, 1 in time, 0.004 s late at most``."""
    if late_levels:
        return f"levels late, early or lost: {_listed(late_levels)}"
    worst_s = max((probe.late_s or 0.0 for probe in run.probes), default=0.0)
    levels = [probe.level for probe in run.probes]
    return f"levels {_listed(levels)} in time, {max(worst_s, 0.0):.3f} s late at most"


def _listed(levels: Iterable[int]) -> str:
    return ", ".join(str(level) for level in levels)


def catching_keys(binding_keys: Iterable[str], routing_key: str) -> Sequence[str]:
    """Return those of *binding_keys* of a topic exchange that match *routing_key*; sorted."""
    words = routing_key.split(".")
    return sorted(key for key in binding_keys if _matches(key.split("."), words))


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Match as a topic exchange does: ``*`` is one word, ``#`` any number of words."""
    reached = {0}  # how many words may be used up by the pattern so far
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {n + 1 for n in reached if n < len(words) and part in ("*", words[n])}
    return len(words) in reached


# ── sending them ──────────────────────────────────────────────────────────────────────────────


def send_probes(
    settings: ConnectionSettings,
    version: DelaysVersion,
    levels: Sequence[int],
    *,
    timeout_s: float,
    find_bindings: FindBindings | None,
    guard: Callable[[], None] = lambda: None,
) -> ProbeRun:
    """Send one probe through each of *levels*, wait for them, and return what came back.

    Args:
        settings: Where to.
        version: Through which generation.
        levels: Each once; each delay is below *timeout_s*.
        timeout_s: What is not back by then is lost.
        find_bindings: From the management API; None: nobody can tell who would listen in.
        guard: Called many times a second while probes are awaited; raises what breaks that off.

    Raises:
        PreflightRefused: The delays are not as they must be, or somebody else would get the
            probes. Nothing was sent.
        TargetError: The broker did not do what was asked. What was sent comes into our queue.
        Whatever *guard* raises: Our queue stays for what was sent, and removes itself.
    """
    refuse_unusable(settings, version, find_bindings)
    patient = replace(settings, blocked_deadline_s=max(timeout_s, 1.0))
    sent_s, back_s = dict[int, float](), dict[int, float]()
    with admin_session(patient, purpose="probe") as admin:
        name = new_probe_queue(admin, version, find_bindings)
        try:
            deadline_s = time.monotonic() + timeout_s
            for level in sorted(levels, reverse=True):
                sent_s[level] = time.monotonic()  # before it entered: never too favourable
                if not _send_probe(admin, version, name, level):
                    del sent_s[level]
                    raise TargetError(
                        f"the {version} levels did not take the probe of level {level}"
                    )
            _collect(admin, name, sent_s, back_s, deadline_s, guard)
        finally:
            is_left = not sent_s.keys() <= back_s.keys()
            if not is_left and admin.is_open:
                admin.delete_queue(name, if_empty=False)
    late_s = {n: back_s[n] - sent_s[n] - probe_delay_s(n) for n in back_s}
    return ProbeRun(
        version=version,
        probes=tuple(ProbeTrip(level=level, late_s=late_s.get(level)) for level in sorted(levels)),
        left_queue=name if is_left else "",
    )


def are_back(settings: ConnectionSettings, run: ProbeRun) -> bool:
    """Return whether the lost probes of *run* are in their queue now; it is removed then.

    True as well when the queue is gone. Looking makes its day begin anew.

    Raises:
        TargetError: The broker cannot be asked, or does not remove the queue.
    """
    with admin_session(settings, purpose="look for lost probes") as admin:
        found = admin.queue(run.left_queue)
        if found is not None and found.ready < run.lost:
            return False
        if found is not None:
            admin.delete_queue(run.left_queue, if_empty=False)
        return True


def refuse_unusable(
    settings: ConnectionSettings, version: DelaysVersion, find_bindings: FindBindings | None
) -> None:
    """Return if the delays are as they must be.

    Raises:
        PreflightRefused: They are not. Nothing was sent.
    """
    if not inspect_delays(settings, version, find_bindings=find_bindings).is_usable:
        raise PreflightRefused(
            f"the delays {version} are not as they must be, so nothing was sent; "
            f"`migrator delays show --delays {version}` says what is wrong"
        )


def new_probe_queue(
    admin: AdminSession, version: DelaysVersion, find_bindings: FindBindings | None
) -> QueueName:
    """Return the name of a queue that gets what is sent to it through the levels of *version*.

    It outlives us, and expires by itself; whoever sends removes it when all is back.

    Raises:
        PreflightRefused: Somebody else would get the same. The queue is removed.
    """
    name = QueueName(f"{PREFIX}probe.{secrets.token_hex(12)}")
    admin.declare_queue(name, {"x-queue-type": "classic", "x-expires": _EXPIRES_MS})
    admin.bind_queue(delivery_exchange(version), name, delivery_binding_key(name))
    if find_bindings is not None:
        try:
            _refuse_listeners(version, name, find_bindings)
        except MigratorError:
            if admin.is_open:
                admin.delete_queue(name, if_empty=False)
            raise
    return name


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
            f"nothing was sent: exchange {delivery} would also deliver the probes to others: "
            f"{listed}"
        )


def _send_probe(admin: AdminSession, version: DelaysVersion, queue: QueueName, level: int) -> bool:
    """Send one; return whether a level took it."""
    delay_s = probe_delay_s(level)
    where = address(version, delay_s, queue)
    return admin.publish(
        where.exchange,
        where.routing_key,
        message_id=_id(queue, level),
        app_id="migrator-probe",
        headers={TIME_SENT: build_wire_time(datetime.now(UTC)), DELAY_IN_SECONDS: delay_s},
    )


def _collect(
    admin: AdminSession,
    queue: QueueName,
    sent_s: Collection[int],
    back_s: dict[int, float],
    deadline_s: float,
    guard: Callable[[], None],
) -> None:
    levels = {_id(queue, level): level for level in sent_s}

    def is_enough(message_id: str | None) -> bool:
        now_s = time.monotonic()
        if message_id in levels:
            back_s.setdefault(levels[message_id], now_s)
        if len(back_s) == len(levels) or now_s >= deadline_s:
            return True
        guard()
        return False

    admin.receive(queue, is_enough, look_s=_LOOK_S)


def _id(queue: QueueName, level: int) -> str:
    return f"{queue}/{level}"
