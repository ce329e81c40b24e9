"""Destinations: whether a message would find its way out of the delays again.

With v2, messages for a name that nobody is bound to freeze a level for every endpoint (reference
``native-delays.md`` section 5.3), so each destination is bound, or refused, before its first
message is sent. Binding twice changes nothing; answers are remembered for a while. What the broker
answers about one name says nothing of the others, whatever it closes over it.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from migrator.delays.routing import (
    DelaysVersion,
    Topology,
    Unreachable,
    delivery_binding_key,
    delivery_exchange,
    no_answer,
)
from migrator.delays.topology import FindBindings
from migrator.errors import AccessRefused, TargetError, TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import ANSWER_S, AdminSession, admin_session, can_exist
from migrator.rabbitmq.connection import (
    ConnectionSettings,
    EntityAbsent,
    EntityLocked,
    NoAnswer,
)
from migrator.rabbitmq.entities import Binding, Entity, exchange_entity, queue_entity
from migrator.rabbitmq.names import exactly

_log = logging.getLogger(__name__)


_REMEMBERED_S: Final = 60.0
_REFUSAL_REMEMBERED_S: Final = 3.0
"""So that what an operator has just mended is seen at once."""
A = TypeVar("A")


class DestinationAnswers(ABC, Generic[A]):
    """What was found out about destinations, remembered for a while; for several threads."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Know nothing yet; answers age by *monotonic_s*."""
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._remembered: dict[QueueName, tuple[float, A | Unreachable]] = {}
        self._forgets: Counter[QueueName] = Counter()

    @abstractmethod
    def _ask(self, names: Sequence[QueueName]) -> Mapping[QueueName, A | Unreachable]:
        """Ask the broker for each of *names*, none of them twice."""

    def answers(self, names: Collection[QueueName]) -> Mapping[QueueName, A | Unreachable]:
        """Return what is true of each of *names*, or why it cannot be reached.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
        """
        with self._lock:
            found = {name: self._remembered[name][1] for name in names if self._is_fresh(name)}
            forgets = {name: self._forgets[name] for name in names}
        asked = [name for name in dict.fromkeys(names) if name not in found]
        if asked:  # without the lock: who only forgets a name must not wait for the broker
            told = self._ask(asked)
            with self._lock:
                now_s = self._monotonic_s()
                for name, answer in told.items():
                    # else the answer may be older than what made it be forgotten
                    if self._forgets[name] == forgets[name]:
                        self._remembered[name] = now_s, answer
            found |= told
        return found

    def _is_fresh(self, name: QueueName) -> bool:
        if name not in self._remembered:
            return False
        asked_s, answer = self._remembered[name]
        is_refusal = isinstance(answer, Unreachable)
        limit_s = _REFUSAL_REMEMBERED_S if is_refusal else _REMEMBERED_S
        return self._monotonic_s() - asked_s <= limit_s

    def known(self) -> Collection[QueueName]:
        """Return the names that were asked for so far and can be reached."""
        with self._lock:
            answers = self._remembered.items()
            return [name for name, (_, each) in answers if not isinstance(each, Unreachable)]

    def forget(self, names: Collection[QueueName]) -> None:
        """Ask again for *names* at the next call."""
        with self._lock:
            self._forgets.update(names)
            for name in names:
                self._remembered.pop(name, None)

    def forget_refusals(self) -> None:
        """Ask again, at the next call, for every name that could not be reached."""
        with self._lock:
            answers = list(self._remembered.items())
        self.forget([name for name, (_, each) in answers if isinstance(each, Unreachable)])


def ask_each(
    settings: ConnectionSettings,
    names: Collection[QueueName],
    ask: Callable[[AdminSession, QueueName], A | Unreachable],
) -> Mapping[QueueName, A | Unreachable]:
    """Return what *ask* finds out about each of *names*, one after the other.

    A refusal is the answer about its name. A name over which the broker closes the connection is
    asked for once more, over another one and behind the others; then that is the answer.

    Raises:
        TargetUnavailable: The broker cannot be reached.
        AccessRefused: It refuses us, or *ask* says that it would refuse every name.
    """
    found: dict[QueueName, A | Unreachable] = {}
    left, tried = deque(names), set[QueueName]()
    while left:
        with admin_session(settings, purpose="look for destinations") as admin:
            while left and admin.is_open:
                name = left.popleft()
                try:
                    found[name] = ask(admin, name)
                except EntityLocked as exc:
                    found[name] = _locked(name, exc)
                except AccessRefused:
                    raise
                except TargetError as exc:
                    if isinstance(exc, TargetUnavailable) and name not in tried:
                        tried.add(name)
                        left.append(name)
                    else:
                        found[name] = _refused(name, exc)
    return found


class Destinations(DestinationAnswers[None]):
    """Whether messages would find their way out of the delays."""

    def __init__(
        self,
        settings: ConnectionSettings,
        version: DelaysVersion,
        *,
        topology: Topology = Topology.AUTO,
        bind: bool = True,
        find_bindings: FindBindings | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask the broker that *settings* name.

        Args:
            settings: Where to ask.
            version: Which generation of the delays.
            topology: How endpoints are reached.
            bind: False: bind nothing (preview, or all endpoints support native delays); a binding
                that is known to be missing is refused.
            find_bindings: Bindings by source exchange, from the management API; None: bindings
                that are not ours to make are taken for granted.
            monotonic_s: What answers age by.
        """
        super().__init__(monotonic_s)
        self._settings = settings
        self._delivery = delivery_exchange(version)
        self._topology = topology
        self._may_bind = bind
        self._find_bindings = find_bindings

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        """Bind each of *names* to the delivery exchange; return those that cannot be.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
            AccessRefused: It refuses us, whatever the destination.
        """
        found = self.answers(names)
        return {name: each for name, each in found.items() if each is not None}

    def _ask(self, names: Sequence[QueueName]) -> Mapping[QueueName, Unreachable | None]:
        with admin_session(self._settings, purpose="bind destinations") as admin:
            if not admin.has_exchange(self._delivery):
                raise EntityAbsent(
                    f"{self._settings.address}: exchange {self._delivery} does not exist; "
                    "create the delays first: migrator delays create"
                )
        bound = None
        if not self._may_bind and self._find_bindings is not None:
            # an API that is there and does not answer raises: a missing binding must be noticed
            bound = {*self._find_bindings(self._delivery)}
        return ask_each(self._settings, names, partial(self._look, bound))

    def _look(
        self, bound: Collection[Binding] | None, admin: AdminSession, name: QueueName
    ) -> Unreachable | None:
        target = find_target(admin, name, self._topology, self._find_bindings)
        if isinstance(target, Unreachable):
            return target
        binding = Binding(source=self._delivery, target=target, key=delivery_binding_key(name))
        if self._may_bind:
            return self._bind(admin, name, binding)
        is_missing = bound is not None and binding not in bound
        return _unbound(name, "nothing binds it to the delays") if is_missing else None

    def _bind(self, admin: AdminSession, name: QueueName, binding: Binding) -> Unreachable | None:
        try:
            admin.bind(binding)
        except AccessRefused as exc:
            if f"'{self._delivery}'" in str(exc):  # then none may be bound
                raise
            return self._not_permitted(name, exc)
        except EntityAbsent:
            return _unknown(name)  # deleted since we looked
        return None

    def _not_permitted(self, name: QueueName, error: AccessRefused) -> Unreachable:
        address = self._settings.address
        return Unreachable(
            reason=Reason.NO_PERMISSION,
            detail=(
                f"{name!r}: user {address.user!r} needs permission to write to it in virtual host "
                f"{address.vhost!r}: add {exactly(name)} to the pattern for write; "
                f"`migrator db grants --broker` prints all three ({error})"
            ),
        )


def find_target(
    admin: AdminSession, name: QueueName, topology: Topology, find_bindings: FindBindings | None
) -> Entity | Unreachable:
    """Return the entity that takes messages for *name*: its exchange, or its queue; or why none.

    Without *find_bindings*, an exchange is taken to lead to its queue. Creates nothing.
    """
    try:
        has_queue = bool(name) and admin.queue(name, answer_s=ANSWER_S) is not None
        by_exchange = bool(name) and topology is not Topology.DIRECT and admin.has_exchange(name)
    except EntityLocked as exc:
        return _locked(name, exc)
    except NoAnswer:
        return no_answer(name)
    if not has_queue and by_exchange:
        return _unbound(name, "the exchange exists, but no queue of that name")
    if not has_queue:
        return _unknown(name)
    if by_exchange:
        if _leads_nowhere(find_bindings, name):
            return _unbound(name, "its exchange does not lead to its queue")
        return exchange_entity(name)
    if topology is Topology.CONVENTIONAL:
        return _unbound(name, "the queue exists, but the exchange that leads to it does not")
    return queue_entity(name)


def _leads_nowhere(find_bindings: FindBindings | None, exchange: QueueName) -> bool:
    """Return whether the API knows that an endpoint's exchange misses its queue.

    A courtesy that no other tool offers, so an API that does not answer changes nothing.
    """
    if find_bindings is None:
        return False
    try:
        return all(binding.target != queue_entity(exchange) for binding in find_bindings(exchange))
    except TargetError as exc:
        _log.info(
            "the management API did not say where an exchange leads",
            extra={"action": "bindings_unknown", "destination": exchange, "detail": str(exc)},
        )
        return False


def _unknown(name: QueueName) -> Unreachable:
    detail = f"the broker has no queue {name!r}"
    return Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail=detail)


def _unbound(name: QueueName, detail: str) -> Unreachable:
    return Unreachable(reason=Reason.DESTINATION_UNBOUND, detail=f"{name!r}: {detail}")


def _refused(name: QueueName, error: TargetError) -> Unreachable:
    return Unreachable(reason=Reason.REFUSED, detail=f"{name!r}: {error}")


def _locked(name: QueueName, error: EntityLocked) -> Unreachable:
    return _unbound(name, f"its queue is exclusive to another connection ({error})")


def find_unbindable(
    settings: ConnectionSettings, version: DelaysVersion, names: Collection[QueueName]
) -> Mapping[QueueName, str]:
    """Return those of *names* that may not be bound to the delays, with the broker's words.

    Binds nothing: it removes a binding that nobody has, which is no error and needs the same
    rights. A queue and an exchange of one name need the same, too.
    """
    refused = {}
    delivery = delivery_exchange(version)
    with admin_session(settings, purpose="look") as admin:
        for name in filter(can_exist, names):
            key = f"{delivery_binding_key(name)}.probe-{secrets.token_hex(6)}"
            try:
                admin.unbind(Binding(source=delivery, target=queue_entity(name), key=key))
            except AccessRefused as exc:
                refused[name] = str(exc)
            except EntityLocked:  # exclusive to somebody: the rights were looked at before
                continue
    return refused


# ── what is missing, for a person ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationBinding:
    """How far the way from the delays to one destination is there.

    A message leaves by a binding ``#.<destination>`` of the delivery exchange, either straight to
    the queue or to an exchange of its name that leads there (``native-delays.md`` section 2).
    """

    version: DelaysVersion
    destination: QueueName
    has_queue: bool
    has_exchange: bool
    """Of the destination's name."""
    is_bound: bool
    """Something is bound to the delivery exchange for it."""
    leads_on: bool
    """What is bound for it is a queue, or an exchange that leads on."""

    @property
    def is_open(self) -> bool:
        """Whether its messages leave the delays."""
        return self.is_bound and self.leads_on

    @property
    def problem(self) -> str:
        """What is missing, in words; empty when nothing is."""
        if self.is_open:
            return ""
        if not self.has_queue:
            return "its queue does not exist"
        if not self.is_bound:
            return "nothing binds it to the delays"
        return "it is bound to the delays, but its exchange leads nowhere"

    @property
    def missing(self) -> tuple[Binding, ...]:
        """The bindings to be made, the last stretch first; empty when the way is open.

        Once they are made, messages that wait in the levels leave them.
        """
        if self.is_open:
            return ()
        name, delivery = self.destination, delivery_exchange(self.version)
        target = exchange_entity(name) if self.has_exchange else queue_entity(name)
        first = Binding(source=delivery, target=target, key=delivery_binding_key(name))
        if not self.has_exchange:
            return (first,)
        last = Binding(source=name, target=queue_entity(name), key="")
        needed = () if self.leads_on and self.has_queue else (last,)
        return needed if self.is_bound else (*needed, first)

    @property
    def remedy(self) -> str:
        """What to do, in words; empty when the way is open."""
        if self.is_open:
            return ""
        steps = [] if self.has_queue else [f"create queue {self.destination}"]
        steps += [_sentence(binding) for binding in self.missing]
        return "start its endpoint once with installers enabled, or " + ", then ".join(steps)


def _sentence(binding: Binding) -> str:
    kind = "queue" if binding.target_is_queue else "exchange"
    key = f"with key {binding.key}" if binding.key else "without a key"
    return f"bind exchange {binding.source} to {kind} {binding.target.name} {key}"


def find_destination_bindings(
    settings: ConnectionSettings,
    version: DelaysVersion,
    names: Collection[QueueName],
    find_bindings: FindBindings,
) -> Mapping[QueueName, DestinationBinding]:
    """Return how far the way to each of *names* is there; makes nothing.

    Raises:
        TargetError: The broker, or its management API, cannot be asked.
    """
    bound: defaultdict[str, list[Binding]] = defaultdict(list)
    for binding in find_bindings(delivery_exchange(version)):
        bound[binding.key].append(binding)
    with admin_session(settings, purpose="look for destinations") as admin:
        return {
            name: DestinationBinding(
                version=version,
                destination=name,
                has_queue=_has_queue(admin, name),
                has_exchange=admin.has_exchange(name),
                is_bound=bool(to := bound[delivery_binding_key(name)]),
                leads_on=any(b.target_is_queue or [*find_bindings(b.target.name)] for b in to),
            )
            for name in names
        }


def _has_queue(admin: AdminSession, name: QueueName) -> bool:
    try:
        return admin.queue(name, answer_s=ANSWER_S) is not None
    except (EntityLocked, NoAnswer):  # exclusive to somebody, or it hangs: so it is there
        return True
