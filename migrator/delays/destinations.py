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
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from migrator.delays.routing import (
    DelaysVersion,
    Topology,
    Unreachable,
    delivery_binding_key,
    delivery_exchange,
)
from migrator.delays.targets import UNFIT_KINDS, find_target, locked, refused, unbound, unknown
from migrator.delays.topology import FindBindings
from migrator.errors import AccessRefused, TargetError, TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import ANSWER_S, AdminSession, admin_session, can_exist
from migrator.rabbitmq.connection import (
    ConnectionSettings,
    EntityAbsent,
    EntityLocked,
)
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    Kind,
    queue_entity,
    reject_limits,
)
from migrator.rabbitmq.names import exactly

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_log = logging.getLogger(__name__)


_REMEMBERED_S: Final = 60.0
_REFUSAL_REMEMBERED_S: Final = 3.0
"""So that what an operator has just mended is seen at once."""
_API_AGAIN_S: Final = 30.0
A = TypeVar("A")
T = TypeVar("T")


class DestinationAnswers(ABC, Generic[A]):
    """What was found out about destinations, remembered for a while; for several threads."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
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
    *,
    delivery: str | None = None,
) -> Mapping[QueueName, A | Unreachable]:
    """Return what *ask* finds out about each of *names*, one after the other.

    With *delivery* the delays have to exist, whose delivery exchange has that name.

    A refusal is the answer about its name. A name over which the broker closes the connection is
    asked for once more, over another one and behind the others; then that is the answer.

    Raises:
        TargetUnavailable: The broker cannot be reached.
        AccessRefused: It refuses us, or *ask* says that it would refuse every name.
        EntityAbsent: There are no delays.
    """
    found: dict[QueueName, A | Unreachable] = {}
    left, tried = deque(names), set[QueueName]()
    while left:
        with admin_session(settings, purpose="look for destinations") as admin:
            if delivery is not None and not admin.find_exchange(delivery):
                raise EntityAbsent(
                    f"{settings.address}: exchange {delivery} does not exist; "
                    "create the delays first: migrator delays create"
                )
            while left and admin.is_open:
                name = left.popleft()
                try:
                    found[name] = ask(admin, name)
                except EntityLocked as exc:
                    found[name] = locked(name, exc)
                except AccessRefused:
                    raise
                except TargetError as exc:
                    if isinstance(exc, TargetUnavailable) and name not in tried:
                        tried.add(name)
                        left.append(name)
                    else:
                        found[name] = refused(name, exc)
    return found


class BoundNames:
    """Names bound to the delays as far as we know ourselves, where no API shows all; any thread.

    Those that we bound in this process, and those for which the ledger has messages in the delays.
    """

    def __init__(self, handed_over: Callable[[], Collection[QueueName]]) -> None:
        self._handed_over = handed_over
        self._lock = threading.Lock()
        self._names: set[QueueName] | None = None
        self._added: set[QueueName] = set()

    def add(self, name: QueueName) -> None:
        """Note that *name* is bound."""
        with self._lock:
            self._added.add(name)

    def names(self) -> Collection[QueueName]:
        """Return all names that are known to be bound."""
        with self._lock:
            if self._names is None:
                self._names = {*self._handed_over()}
            return self._names | self._added


def collision(name: QueueName, bound: Set[QueueName]) -> Unreachable | None:
    """Return why delayed messages would reach two queues if *name* were bound; None: they do not.

    Of two that are bound already, only messages for the longer one reach both.
    """
    catcher = next((each for each in _endings(name) if each in bound), None)
    if catcher is not None:
        why = f"delayed messages for it would also reach {catcher}, which is bound already"
    elif name in bound:
        return None
    elif caught := sorted(each for each in bound if each.endswith(f".{name}")):
        why = f"once bound, it would also get delayed messages for {caught[0]}, which is bound"
    else:
        return None
    remedy = Reason.SUFFIX_COLLISION.remedy.replace("`", "")
    return Unreachable(reason=Reason.SUFFIX_COLLISION, detail=f"{name!r}: {why}. {remedy}")


def _endings(name: QueueName) -> Iterator[QueueName]:
    """Yield the names that *name* ends in behind a dot, the longest first."""
    rest = str(name)
    while "." in rest:
        rest = rest.partition(".")[2]
        yield QueueName(rest)


def names_bound_by(bindings: Collection[Binding]) -> set[QueueName]:
    """Return the names that *bindings* of the delivery exchange are for."""
    prefix = delivery_binding_key(QueueName(""))
    keys = (binding.key for binding in bindings if binding.key.startswith(prefix))
    return {QueueName(key.removeprefix(prefix)) for key in keys if key != prefix}


class Destinations(DestinationAnswers[None]):
    """Whether messages would find their way out of the delays.

    Args:
        settings: Where to ask.
        version: Which generation of the delays.
        topology: How endpoints are reached.
        bind: False: bind nothing (preview, or all endpoints support native delays); a binding
            that is known to be missing is refused.
        find_bindings: Bindings by source exchange, from the management API; None: bindings
            that are not ours to make are taken for granted.
        management: Knows types of exchanges and limits of queues; None: it is not asked.
        bound: What is bound as far as we know ourselves; None: suffix collisions are accepted.
        monotonic_s: What answers age by.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        version: DelaysVersion,
        *,
        topology: Topology = Topology.AUTO,
        bind: bool = True,
        find_bindings: FindBindings | None = None,
        management: ManagementApi | None = None,
        bound: BoundNames | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(monotonic_s)
        self._settings = settings
        self._delivery = delivery_exchange(version)
        self._topology = topology
        self._may_bind = bind
        self._find_bindings = find_bindings
        self._management = management
        self._bound = bound
        self._api_again_s = float("-inf")
        """When the management API is asked again, after it did not answer."""
        self._limited: set[QueueName] = set()
        """Destinations whose queue may be full at any time."""

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        """Bind each of *names* to the delivery exchange; return those that cannot be.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
            AccessRefused: It refuses us, whatever the destination.
        """
        found = self.answers(names)
        return {name: each for name, each in found.items() if each is not None}

    def _ask(self, names: Sequence[QueueName]) -> Mapping[QueueName, Unreachable | None]:
        bindings = self._bindings_of_delivery()
        bound = self._bound_names(bindings)
        # a catcher is bound before what it would catch, so of two new ones the longer is parked
        in_order = sorted(names, key=lambda name: (name.count("."), name))
        look = partial(self._look, bindings, bound)
        return ask_each(self._settings, in_order, look, delivery=self._delivery)

    def _look(
        self,
        bindings: Collection[Binding] | None,
        bound: set[QueueName] | None,
        admin: AdminSession,
        name: QueueName,
    ) -> Unreachable | None:
        find = self._bindings_from if self._find_bindings is not None else None
        target = find_target(admin, name, self._topology, find)
        if isinstance(target, Unreachable):
            return target
        binding = Binding(source=self._delivery, target=target, key=delivery_binding_key(name))
        why = self._unfit_exchange(admin, name, target) or self._full(admin, name)
        if why is None and bound is not None:
            why = collision(name, bound)
        if why is None and self._may_bind:
            why = self._bind(admin, name, binding)
        elif why is None and bindings is not None and binding not in bindings:
            why = unbound(name, "nothing binds it to the delays")
        if why is None and self._bound is not None and bound is not None:
            self._bound.add(name)
            bound.add(name)
        return why

    def _bindings_of_delivery(self) -> Collection[Binding] | None:
        """Return what is bound to the delays; None: only the management API could tell."""
        if self._find_bindings is None:
            return None
        try:
            return {*self._bindings_from(self._delivery)}
        except TargetError:
            if not self._may_bind:  # then a missing binding must be noticed
                raise
            return None

    def _bound_names(self, bindings: Collection[Binding] | None) -> set[QueueName] | None:
        """Return the names that are bound; None: collisions are accepted."""
        if self._bound is None:
            return None
        return {*self._bound.names()} if bindings is None else names_bound_by(bindings)

    def _unfit_exchange(
        self, admin: AdminSession, name: QueueName, target: Entity
    ) -> Unreachable | None:
        if target.kind is not Kind.EXCHANGE:
            return None
        try:
            kind = admin.exchange_kind(name, "fanout")
        except AccessRefused:  # who may only bind it is not told; the API knows
            api = self._management
            kind = self._asked(lambda: api.exchange_kind(name) if api else None)
        if kind not in UNFIT_KINDS:
            return None
        if kind == "topic" and self._asked(lambda: self._takes_all(name)):
            return None
        return Unreachable(
            reason=Reason.EXCHANGE_TYPE,
            detail=f"{name!r}: exchange {name} is of type {kind}, not fanout: it does not lead "
            "delayed messages to the queue",
        )

    def _takes_all(self, name: QueueName) -> bool:
        if self._find_bindings is None:
            return False
        queue = queue_entity(name)
        return any(b.target == queue and b.key == "#" for b in self._bindings_from(name))

    def _full(self, admin: AdminSession, name: QueueName) -> Unreachable | None:
        """Return how full the queue is, if it rejects messages now."""
        api = self._management
        state = self._asked(lambda: api.queue(name) if api else None)
        limits = () if state is None else reject_limits(state)
        if not limits or state is None:
            self._limited.discard(name)
            return None
        self._limited.add(name)
        if (facts := admin.queue(name, answer_s=ANSWER_S)) is not None:  # newer than the API
            limits = reject_limits(replace(state, ready=facts.ready))
        for each in limits:
            if each.is_reached:
                return Unreachable(
                    reason=Reason.REFUSED,
                    detail=f"queue {name} is full: {each.text}, and it rejects more",
                )
        return None

    def _is_fresh(self, name: QueueName) -> bool:
        asked_s, _ = self._remembered.get(name, (float("-inf"), None))
        is_recent = self._monotonic_s() - asked_s <= _REFUSAL_REMEMBERED_S
        return super()._is_fresh(name) and (name not in self._limited or is_recent)

    def _bindings_from(self, exchange: str) -> Collection[Binding]:
        """Return the bindings of an exchange.

        Raises:
            TargetError: The management API does not answer, or did not a moment ago.
        """
        if self._find_bindings is None:
            return ()
        if self._monotonic_s() < self._api_again_s:
            raise TargetUnavailable("the management API did not answer a moment ago")
        try:
            return [*self._find_bindings(exchange)]
        except TargetError:
            self._api_again_s = self._monotonic_s() + _API_AGAIN_S
            raise

    def _asked(self, ask: Callable[[], T]) -> T | None:
        """Return what the management API says; None: it does not say."""
        if self._monotonic_s() < self._api_again_s:
            return None
        try:
            return ask()
        except TargetError as exc:
            self._api_again_s = self._monotonic_s() + _API_AGAIN_S
            _log.info(
                "the management API did not answer; what only it knows is not checked",
                extra={"action": "bindings_unknown", "detail": str(exc)},
            )
            return None

    def _bind(self, admin: AdminSession, name: QueueName, binding: Binding) -> Unreachable | None:
        try:
            admin.bind(binding)
        except AccessRefused as exc:
            if f"'{self._delivery}'" in str(exc):  # then none may be bound
                raise
            return self._not_permitted(name, exc)
        except EntityAbsent:
            return unknown(name)  # deleted since we looked
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
