"""What a check is given and what it returns: the values that all checks share.

A finding is ok, a warning, refused or not checked, never a guess. An unanswered question is
``NOT_CHECKED``, which does not mean ok. A refusal of a repeated check stands until the check has
inspected the same subjects again, and refuses none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final

from migrator.delays.routing import DelaysVersion
from migrator.errors import PreflightRefused
from migrator.ledger.report import BatchElsewhere, HeldDestination
from migrator.ledger.states import Mode
from migrator.ledger.work import Clock
from migrator.nservicebus.timeouts import QueueName
from migrator.stores.due_times import DueTimeRules
from migrator.stores.endpoints import EndpointPreview
from migrator.stores.ports import Store

if TYPE_CHECKING:
    from migrator.delays.broker import BrokerFacts
    from migrator.ledger.queries import SqlHandOvers
    from migrator.preflight.queries import LedgerFacts

MIGRATE: Final = "migrate"
DISPATCH: Final = "dispatch"
FORWARD: Final = "forward"
MOVING: Final = (MIGRATE, FORWARD)
"""Modes in which stored rows are moved into the native delays."""
UNREACHABLE: Final = frozenset({"broker-reachable", "store-reachable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Satellites:
    endpoint: str
    queue: str
    """The endpoint's input queue; the satellites are named after it."""
    error_queue: str
    retry_queues: Sequence[str]


class Protection(Enum):
    NONE = auto()
    ENCRYPTED = auto()
    """The certificate is not verified."""
    VERIFIED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    subject: str
    """As a finding names it: ``store``, ``ledger``, ``broker``, ``management API``."""
    host: str
    protection: Protection
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysContext:
    broker: BrokerFacts
    version: DelaysVersion
    accepts_suffix_collisions: bool
    wall_clock: Callable[[], datetime]
    """This machine's; aware, UTC."""
    hand_overs: SqlHandOvers | None = None
    """None: no store is configured."""
    watch_s: float = 0.0
    """How long a level with stuck messages is watched; 0: two samples, one after the other."""
    wait: Callable[[float], None] = lambda _s: None

    @property
    def delays(self) -> DelaysVersion | None:
        """The version that messages are to enter; None: none enters any."""
        return self.version

    @property
    def mode(self) -> Mode | None:
        """How batches are handed over; None: no row is to be moved."""
        return None

    @property
    def retry_queues(self) -> Sequence[str]:
        return ()

    @property
    def our_queues(self) -> Sequence[str]:
        return ()

    @property
    def our_exchanges(self) -> Sequence[str]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(DelaysContext):
    store: Store
    ledger: LedgerFacts
    clock: Clock
    endpoint_names: Sequence[str]
    """Empty: all that the store has."""
    previews: Sequence[EndpointPreview] | None
    """None: rows were not read, so what depends on them is not checked."""
    chosen_mode: Mode
    cutoff: timedelta
    may_bind: bool
    """False: all endpoints support native delays and bind themselves."""
    own_queues: Sequence[str]
    own_exchanges: Sequence[str]
    modes: Mapping[str, str]
    queues: Mapping[str, str]
    satellites: Sequence[Satellites]
    sends_near_due: bool
    poison_queue: str = ""
    """For foreign messages in migrator's queues; empty: without a ledger it has no name."""
    due_times: DueTimeRules = field(default_factory=DueTimeRules)
    vhost: str = "/"
    unreadable: Collection[str] = ()
    """Endpoints whose rows could not be read; one refusal says why, so other checks skip them."""
    held: Collection[QueueName] = ()
    """Destinations that an earlier run could not reach, and whose rows are parked."""
    parked: Sequence[HeldDestination] = ()
    connections: Sequence[Connected] = ()
    other_commits: Sequence[BatchElsewhere] = ()
    """Batches of ended processes that only a run into other delays can finish."""

    def mode_of(self, endpoint: str) -> str:
        return self.modes.get(endpoint, MIGRATE)

    @property
    def names(self) -> Sequence[str]:
        """The chosen endpoints; empty when they are unknown."""
        if self.endpoint_names or self.previews is None:
            return self.endpoint_names
        return [preview.endpoint for preview in self.previews]

    @property
    def delays(self) -> DelaysVersion | None:
        moving = not self.names or any(self.mode_of(n) in MOVING for n in self.names)
        return self.version if moving else None

    @property
    def mode(self) -> Mode | None:
        return None if self.delays is None else self.chosen_mode

    @property
    def retry_queues(self) -> Sequence[str]:
        return [name for each in self.satellites for name in each.retry_queues]

    @property
    def our_queues(self) -> Sequence[str]:
        staging = () if self.delays is None else self.own_queues
        return [*staging, *self.retry_queues]

    @property
    def our_exchanges(self) -> Sequence[str]:
        if self.delays is None:
            return ()
        # a lane's staging exchange has the name of its queue
        return [*self.own_exchanges, *self.own_queues]

    def previews_of(self, *modes: str) -> Sequence[EndpointPreview] | None:
        if self.previews is None:
            return None
        return [p for p in self.previews if self.mode_of(p.endpoint) in modes]


def destination_rows(previews: Sequence[EndpointPreview]) -> Counter[QueueName]:
    rows: Counter[QueueName] = Counter()
    for preview in previews:
        rows.update(preview.destinations)
    return rows


# ── what a check found out ────────────────────────────────────────────────────────────────────────


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"
    NOT_CHECKED = "not_checked"


_WORST_FIRST: Final = (Level.REFUSED, Level.WARNING, Level.NOT_CHECKED, Level.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check."""

    check: str = ""
    """Name of the check; public and stable. The registry fills it in."""
    level: Level
    subject: str
    """What was checked: a queue, an endpoint, a table …"""
    text: str
    remedy: str = ""
    """What to do about it; empty when there is nothing to do."""
    endpoint: str | None = None
    """The one endpoint that a refusal concerns; None: all of them."""


def ok(subject: str, text: str) -> Finding:
    return Finding(level=Level.OK, subject=subject, text=text)


def warning(subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(level=Level.WARNING, subject=subject, text=text, remedy=remedy)


def refused(subject: str, text: str, remedy: str = "", *, endpoint: str | None = None) -> Finding:
    return Finding(
        level=Level.REFUSED, subject=subject, text=text, remedy=remedy, endpoint=endpoint
    )


def not_checked(subject: str, text: str) -> Finding:
    return Finding(level=Level.NOT_CHECKED, subject=subject, text=text)


def hidden(subject: str, unknown: str) -> Finding:
    """Return that the user may not inspect queue *subject*, so that *unknown* is unknown."""
    return not_checked(
        subject,
        f"{unknown}: this user has no right on it; any right is enough, such as `write`, which "
        "`migrator db grants --broker` prints",
    )


def verdict(findings: Iterable[Finding]) -> Level:
    """Return the worst level; ``OK`` when there are no findings."""
    levels = {finding.level for finding in findings}
    return next((level for level in _WORST_FIRST if level in levels), Level.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    check: str
    text: str
    remedy: str
    unseen: frozenset[str]


def standing(before: Mapping[str, Refusal], findings: Iterable[Finding]) -> Mapping[str, Refusal]:
    """Return the refusals that stand after *findings*, by check; *before* are those until then."""
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.check].append(finding)
    new = {check: _refusal(check, each) for check, each in found.items() if _refusals(each)}
    kept = {
        check: refusal
        for check, refusal in before.items()
        if check not in new and (check not in found or _unseen(found[check]) - refusal.unseen)
    }
    return dict(sorted({**kept, **new}.items()))


def _refusals(findings: Sequence[Finding]) -> Sequence[Finding]:
    return [each for each in findings if each.level is Level.REFUSED]


def _refusal(check: str, findings: Sequence[Finding]) -> Refusal:
    first, *more = _refusals(findings)
    others = f", and {len(more)} more" if more else ""
    return Refusal(
        check=check,
        text=f"{first.subject}: {first.text}{others}",
        remedy=first.remedy,
        unseen=_unseen(findings),
    )


def _unseen(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(each.subject for each in findings if each.level is Level.NOT_CHECKED)


def by_check(findings: Iterable[Finding]) -> Sequence[Finding]:
    return sorted(findings, key=lambda each: each.check)


def refusals(findings: Iterable[Finding]) -> Mapping[str | None, Sequence[Finding]]:
    found: defaultdict[str | None, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.level is Level.REFUSED:
            found[finding.endpoint].append(finding)
    return dict(found)


def refuse(findings: Iterable[Finding]) -> None:
    """Raise ``PreflightRefused``, with each refusal and its remedy, if any of *findings* is one."""
    found = [f for f in findings if f.level is Level.REFUSED]
    if found:
        texts = (f"{f.subject}: {f.text}" + (f"; {f.remedy}" if f.remedy else "") for f in found)
        error = PreflightRefused("preflight refused: " + "\n  ".join(texts))
        error.remedy = "\n".join(f.remedy for f in found if f.remedy) or None
        raise error


def refuse_all(findings: Iterable[Finding], endpoints: Collection[str]) -> None:
    """As ``refuse``, if something refuses all *endpoints*, or each of them is refused by itself."""
    found = refusals(findings)
    if None in found or found.keys() >= {*endpoints}:
        refuse(each for some in found.values() for each in some)
