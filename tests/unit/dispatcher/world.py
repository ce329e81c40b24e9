"""Store, ledger and queues in memory for one dispatcher; what a crash leaves behind is true."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from migrator.delays.routing import DelaysVersion, Unreachable
from migrator.dispatcher.due import Poller
from migrator.dispatcher.failures import Recoverability
from migrator.dispatcher.link import Delivery, Route, Routed
from migrator.dispatcher.loop import Dispatcher, DispatcherPlan, DispatcherSession
from migrator.dispatcher.receive import DelayedMessageHandler, Forwarding, Storing
from migrator.errors import (
    AccessRefused,
    RowRefused,
    StoreUnavailable,
    TargetError,
    TargetUnavailable,
)
from migrator.ledger.held_destinations import HeldDestinations
from migrator.ledger.states import BatchState
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.conversion import BrokerLimits, Reason
from migrator.nservicebus.incoming import IncomingMessage, OutgoingMessage
from migrator.nservicebus.satellites import ClearTimeouts, DelayedMessage
from migrator.nservicebus.timeouts import (
    NO_SAGA,
    Lane,
    NativeMessage,
    QueueName,
    RunId,
    StoredTimeout,
    TimeoutId,
)
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.publisher import WindowLimits
from migrator.stores.due_times import DueTimeReading
from migrator.stores.requests import Claim, ClaimRequest
from migrator.stores.sql.intake import Applied
from tests.support.due_times import KnownDueTimes
from tests.unit.handover.memory import (
    ENDPOINT,
    START,
    AtOnce,
    Killed,
    MemoryClock,
    MemoryDestinations,
    MemoryLedger,
)
from tests.unit.nservicebus.samples import incoming

LANE = Lane(1000)
TIMEOUTS = QueueName("Sales.Timeouts")
CONTROL = QueueName("Sales.TimeoutsDispatcher")
RETRIES = ("retry.1", "retry.2")
BATCH = 10


class DispatchLedger(MemoryLedger):
    """Adds what only dispatchers need."""

    def __init__(self) -> None:
        super().__init__([])
        self.columns: dict[str, DelayedMessage] = {}
        self.sagas: dict[str, str] = {}
        self.refused: set[str] = set()
        self.is_down = False
        self.lose_answer = False
        self.looks = 0

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        self._up()
        self.looks += 1
        return super().promising(requests)

    def claim(self, request: ClaimRequest) -> Claim | None:
        self._up()
        return super().claim(request)

    def apply(
        self,
        endpoint: StoreEndpoint,
        changes: Sequence[DelayedMessage | ClearTimeouts],
        lease: Lease,
    ) -> Applied:
        self._up()
        if any(isinstance(c, DelayedMessage) and c.destination in self.refused for c in changes):
            raise RowRefused("no")
        done = [self._apply(change) for change in changes]
        if self.lose_answer:
            self.lose_answer = False
            raise StoreUnavailable("the answer was lost")
        return Applied(stored=sum(done), known=len(done) - sum(done), cleared=0)

    def _apply(self, change: DelayedMessage | ClearTimeouts) -> bool:
        if isinstance(change, ClearTimeouts):
            for key in [k for k in self.stored if self.sagas.get(k) == change.saga_id]:
                del self.stored[key]
            return False
        ever = {row.id for rows in self.batch_rows.values() for row in rows}
        if change.id in self.stored or change.id in ever:
            return False
        self.sagas[change.id] = change.saga_id
        self.stored[change.id] = StoredTimeout(
            id=change.id,
            row_index=0,
            destination=change.destination,
            due_at=change.due_at,
            body=change.body,
            headers_text=change.headers_text,
        )
        return True

    def prune(self, lease: Lease, *, older_than: timedelta) -> int:
        return 0

    def _up(self) -> None:
        if self.is_down:
            raise StoreUnavailable("the database is down")


@dataclasses.dataclass
class Arrived:
    """One message that reached a queue."""

    queue: str
    message: NativeMessage | OutgoingMessage
    at: datetime
    delay: str
    """The routing key of a native delay, or empty."""


class Broker:
    """Queues that survive every process."""

    def __init__(self, clock: MemoryClock, chance: random.Random) -> None:
        self.clock = clock
        self.chance = chance
        self.queues: dict[str, deque[IncomingMessage]] = {TIMEOUTS: deque(), CONTROL: deque()}
        self.destinations = {"Billing", "Sales", "error", *RETRIES}
        self.unbound: set[str] = set()
        self.remembered: set[str] = set()
        """Exchanges that are gone, although their route is still known."""
        self.arrived: list[Arrived] = []
        self.seen: set[int] = set()
        self.kept: list[IncomingMessage] = []
        self.full: set[str] = set()
        self.silent: set[str] = set()
        self.forbidden: set[str] = set()
        self.poison: set[str] = set()
        self.failure_rate = 0.0
        self.delivery_limit: int | None = None
        """None: a classic queue, which counts nothing."""
        self.dropped: list[IncomingMessage] = []

    def put(self, queue: str, message: IncomingMessage) -> None:
        """Put a message behind the others."""
        self.queues[queue].append(message)

    def take_back(self, queue: str, message: IncomingMessage) -> None:
        """Put a message in front of the others, or drop it when it has come back too often."""
        if self.delivery_limit is not None:
            count = int(str(message.raw_headers.get("x-delivery-count", 0))) + 1
            message = dataclasses.replace(
                message,
                raw_headers={**message.raw_headers, "x-delivery-count": count},
                raw_properties=b"%d" % count,
            )
            self.seen.add(id(message))
            self.kept.append(message)
            if count > self.delivery_limit:
                self.dropped.append(message)
                return
        self.queues[queue].appendleft(message)

    def cut(self) -> bool:
        return self.chance.random() < self.failure_rate

    def answers(self, names: Collection[QueueName]) -> Mapping[QueueName, Route | Unreachable]:
        known = self.destinations | self.unbound | self.remembered
        return {
            name: Route(exchange=name, routing_key="")
            if name in known
            else Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail="no such queue")
            for name in names
        }

    def forget(self, names: Collection[QueueName]) -> None:
        self.remembered -= set(names)


class Link:
    """One process's connections; what it holds goes back when it dies."""

    frame_max_bytes = 131_072
    silent_s = 0.0
    blocked_reason = None

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.consumed: list[str] = []
        self.unacked: dict[int, tuple[str, IncomingMessage]] = {}
        self.unanswered: list[tuple[PublishResult, int]] = []
        self.tag = 0

    def consume(self, queue: QueueName, *, prefetch: int) -> None:
        self.consumed.append(queue)

    def received(self) -> Sequence[Delivery]:
        found = []
        for queue in self.consumed:
            while self.broker.queues[queue]:
                self.tag += 1
                message = self.broker.queues[queue].popleft()
                self.unacked[self.tag] = (queue, message)
                redelivered = id(message) in self.broker.seen
                self.broker.seen.add(id(message))
                self.broker.kept.append(message)
                found.append(
                    Delivery(
                        queue=QueueName(queue),
                        tag=self.tag,
                        message=message,
                        is_redelivered=redelivered,
                    )
                )
        return found

    def publish(
        self, messages: Iterable[Routed], answers: PublishResult, *, silence_s: float = math.inf
    ) -> Collection[int]:
        silent: set[int] = set()
        for key, (route, message) in enumerate(messages):
            queue = route.exchange or route.routing_key
            is_delayed = route.exchange.startswith("nsb.")
            if self.broker.cut():
                if self.broker.chance.random() < 0.5:
                    self._arrive(route, message)
                raise TargetUnavailable("cut while publishing")
            if queue in self.broker.remembered:
                raise TargetUnavailable("no exchange of that name")
            if queue in self.broker.forbidden:
                raise AccessRefused("no right to write there")
            if message.message_id in self.broker.poison:
                raise TargetError("a property nobody may set")
            if queue in self.broker.full:
                answers.refused.add(key)
                continue
            if queue in self.broker.silent:
                self._arrive(route, message)  # once it gets to it
                self.unanswered.append((answers, key))
                silent.add(key)
                continue
            if not is_delayed and queue not in {*self.broker.destinations, *self.broker.queues}:
                answers.returned.add(key)
                continue
            self._arrive(route, message)
            answers.confirmed.add(key)
        return silent

    def answer(self) -> None:
        """What was silent answers all that it took."""
        for answers, key in self.unanswered:
            answers.confirmed.add(key)
        self.unanswered.clear()

    def _arrive(self, route: Route, message: NativeMessage | OutgoingMessage) -> None:
        queue = route.exchange or route.routing_key
        delay = route.routing_key if route.exchange.startswith("nsb.") else ""
        if isinstance(message, OutgoingMessage) and queue in self.broker.queues:
            copy = incoming(message.headers, message_id=message.message_id, body=message.body)
            self.broker.put(queue, copy)
        else:
            self.broker.arrived.append(Arrived(queue, message, self.broker.clock.now(), delay))

    def acknowledge(self, tags: Iterable[int]) -> None:
        for tag in tags:
            if self.broker.cut():
                raise TargetUnavailable("cut while acknowledging")
            del self.unacked[tag]

    def idle(self, wait_s: float) -> None:
        self.broker.clock.elapsed += max(wait_s, 0.001)
        if self.broker.cut():
            raise TargetUnavailable("cut while idle")

    def wake(self) -> None:
        pass

    def close(self, *, at_once: bool = False) -> None:
        for queue, message in reversed(self.unacked.values()):
            self.broker.take_back(queue, message)
        self.unacked = {}
        for answers, key in self.unanswered:
            answers.unknown.add(key)
        self.consumed = []


class World:
    """Everything outside a process, and how to start one."""

    def __init__(
        self, *, seed: int = 0, forwards: bool = False, retries: Sequence[str] = RETRIES
    ) -> None:
        self.clock = MemoryClock()
        self.ledger = DispatchLedger()
        self.broker = Broker(self.clock, random.Random(seed))
        self.forwards = forwards
        self.retries = retries
        self.destinations = MemoryDestinations()
        self.link: Link | None = None

    # ── an old endpoint ─────────────────────────────────────────────────────────────────────

    def send(
        self, number: int, due_in_s: float, *, to: str = "Billing", saga_id: str = "", **more: str
    ) -> None:
        """Put a delayed message into ``.Timeouts``."""
        headers = {
            "NServiceBus.MessageId": f"m-{number}",
            "NServiceBus.Timeout.Expire": build_wire_time(
                self.clock.now() + timedelta(seconds=due_in_s)
            ),
            "NServiceBus.Timeout.RouteExpiredTimeoutTo": to,
            **({"NServiceBus.SagaId": saga_id} if saga_id else {}),
            **more,
        }
        self.put(TIMEOUTS, headers, message_id=f"m-{number}")

    def clear(self, saga_id: str) -> None:
        """Put a clear-timeouts message into ``.Timeouts``."""
        headers = {"NServiceBus.SagaId": saga_id, "NServiceBus.ClearTimeouts": "True"}
        self.put(TIMEOUTS, headers, message_id=f"clear-{saga_id}")

    def control(self, timeout_id: str) -> None:
        """Put a control message into ``.TimeoutsDispatcher``."""
        self.put(CONTROL, {"Timeout.Id": timeout_id}, message_id=f"control-{timeout_id}")

    def put(self, queue: str, headers: Mapping[str, str], *, message_id: str) -> None:
        self.broker.queues[queue].append(incoming(headers, message_id=message_id))

    def store(self, number: int, due_in_s: float, *, to: str = "Billing") -> TimeoutId:
        """Put a row into the legacy table, as another program would."""
        key = TimeoutId(f"00000000-0000-0000-0000-{number:012d}")
        headers = {"NServiceBus.MessageId": f"m-{number}"}
        self.ledger.stored[key] = StoredTimeout(
            id=key,
            row_index=0,
            destination=to,
            due_at=START + timedelta(seconds=self.clock.elapsed + due_in_s),
            body=b"body",
            headers_text=json.dumps(headers),
        )
        self.ledger.sagas[key] = NO_SAGA
        return key

    # ── processes ───────────────────────────────────────────────────────────────────────────

    def process(self, fault: Callable[[str], None] = lambda _name: None) -> Dispatcher:
        """Start a process: everything but store, ledger and queues is new."""
        poller = Poller(
            endpoint=ENDPOINT,
            run=RunId(1),
            claims=self.ledger,  # type: ignore[arg-type]  # only what is asked
            batches=self.ledger,
            dispatched=self.ledger,  # type: ignore[arg-type]  # only what is asked
            held=HeldDestinations(
                self.ledger.held, self.ledger.parking, ENDPOINT, is_dispatched=True
            ),
            routes=self.broker,  # type: ignore[arg-type]  # only what is asked
            clock=self.clock,
            interval=timedelta(milliseconds=500),
            look_ahead=timedelta(seconds=1),
            max_rows=BATCH,
            max_bytes=1 << 20,
            remember=timedelta(hours=1),
            conversion=BrokerLimits(own_queue=QueueName("Sales")),
            fault=fault,
            due_times=KnownDueTimes(DueTimeReading(comparable=1)),
        )
        plan = DispatcherPlan(
            endpoint=ENDPOINT,
            timeouts_queue=TIMEOUTS,
            control_queue=CONTROL,
            recoverability=Recoverability(
                retry_queues=self.retries,
                error_queue="error",
                endpoint="Sales",
                machine="HOST",
                host_id="0" * 32,
            ),
            retry_delays_s=(),
            prefetch=100,
            version=DelaysVersion.V2,
            limits=WindowLimits(),
            finishes_only=False,
        )
        return Dispatcher(
            plan=plan,
            poller=poller,
            handler=self._handler(fault),
            connection=ConnectionSettings(nodes=parse_addresses("amqp://unused")),
            clock=self.clock,
            storing=AtOnce(),
            claiming=AtOnce(),
            fault=fault,
            sent=lambda _late_s: None,
            completed=lambda _rows, _seconds: None,
        )

    def _handler(self, fault: Callable[[str], None]) -> DelayedMessageHandler:
        parts: dict[str, Any] = {
            "intake": self.ledger,
            "endpoint": ENDPOINT,
            "clock": self.clock,
            "rules": BrokerLimits(),
            "fault": fault,
        }
        if self.forwards:
            return Forwarding(**parts, destinations=self.destinations)
        return Storing(**parts, routes=self.broker)  # type: ignore[arg-type]  # what is asked

    def session(self, process: Dispatcher) -> DispatcherSession:
        """Open a new link for a process."""
        self.link = Link(self.broker)
        return DispatcherSession(
            process,
            lease=Lease(lane=LANE, owner="test", token=self.ledger.token),
            link=self.link,
            guard=lambda: None,
            existing=frozenset({TIMEOUTS, CONTROL} & self.broker.queues.keys()),
        )

    def run(self, seconds: float, process: Dispatcher | None = None) -> Dispatcher:
        """Let one process work for a while, with a new link after each cut."""
        process = process or self.process()
        until = self.clock.elapsed + seconds
        while self.clock.elapsed < until:
            session = self.session(process)
            try:
                while self.clock.elapsed < until:
                    session.turn(may_take=True)
            except (TargetError, StoreUnavailable):
                self.clock.elapsed += 0.5
            finally:
                self.die()
        return process

    def kill_at(self, step: str, hit: int = 1) -> bool:
        """Let a process work until it is killed at a step; return whether it got there."""
        left = hit

        def fault(name: str) -> None:
            nonlocal left
            if name == step:
                left -= 1
                if left == 0:
                    raise Killed

        try:
            self.run(10.0, self.process(fault))
        except Killed:
            return True
        return False

    def die(self) -> None:
        """The kernel closes a dead process's sockets."""
        if self.link is not None:
            self.link.close()

    # ── the account ─────────────────────────────────────────────────────────────────────────

    def delivered(self, queue: str = "Billing") -> Counter[str]:
        """Return how often each message id reached *queue*."""
        return Counter(
            str(each.message.message_id) for each in self.broker.arrived if each.queue == queue
        )

    def in_flight(self) -> set[str]:
        """Return the message ids that were sent, and of which neither ledger nor queue knows."""
        settled = {
            str(json.loads(row.headers_text or "{}")["NServiceBus.MessageId"])
            for batch in self.ledger.batches.values()
            if batch.state is BatchState.DISPATCHED
            for row in self.ledger.batch_rows[batch.id]
        }
        return set(self.delivered()) - settled

    def most_late_s(self) -> float:
        """Return how late the latest of stored and passed-on messages came, in seconds."""
        return max(
            (each.at - each.message.due_at).total_seconds()
            for each in self.broker.arrived
            if isinstance(each.message, NativeMessage)
        )

    def early(self) -> Sequence[str]:
        """Return the message ids of stored and passed-on messages that came before their time."""
        return [
            str(each.message.message_id)
            for each in self.broker.arrived
            if isinstance(each.message, NativeMessage)
            and not each.delay
            and each.at < each.message.due_at
        ]
