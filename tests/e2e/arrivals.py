"""What arrives at receivers, when, and whether that is all of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from dev.processes import PATIENCE_S
from tests.e2e.old_endpoint import OldMessage, logical_key
from tests.e2e.rows import Account


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrival:
    """One message as a receiver got it."""

    at: datetime
    queue: str
    exchange: str
    routing_key: str
    properties: pika.BasicProperties
    body: bytes

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})

    @property
    def key(self) -> str:
        return logical_key(self.properties)

    def late_s(self, message: OldMessage) -> float:
        """Return how many seconds after its due time it came; negative: early."""
        assert message.due_at is not None
        return (self.at - message.due_at).total_seconds()


class Receiver:
    """Consumes queues in a thread, acknowledges by hand, and writes down when what came.

    A broker that goes away is waited for. What it then delivers once more is the same copy, and
    counted once.
    """

    def __init__(self, url: str, *queues: str) -> None:
        """Begin to consume *queues*; they must exist."""
        self._url = url
        self._queues = queues
        self._ended = threading.Event()
        self._consuming = threading.Event()
        self.arrivals: list[Arrival] = []
        """Everything so far, in the order of arrival."""
        self._thread = threading.Thread(target=self._run, name="receiver")
        self._thread.start()
        if not self._consuming.wait(PATIENCE_S):
            self.close()
            raise TimeoutError(f"nobody lets us consume {queues}")

    def close(self) -> None:
        """Stop consuming."""
        self._ended.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at(self, queue: str) -> list[Arrival]:
        """Return what arrived at *queue*."""
        return [each for each in self.arrivals if each.queue == queue]

    def wait_for(
        self, *messages: OldMessage, seconds: float = PATIENCE_S, queue: str | None = None
    ) -> list[Arrival]:
        """Wait until each of *messages* has arrived; return all that came, to *queue* if given."""
        wanted = {each.key for each in messages}
        self.wait(lambda: wanted <= {each.key for each in self._of(queue)}, seconds=seconds)
        return self._of(queue)

    def wait(self, condition: Callable[[], bool], *, seconds: float = PATIENCE_S) -> None:
        """Wait until *condition* holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (
                f"{len(self.arrivals)} arrived, not what was awaited"
            )
            time.sleep(0.02)

    def _of(self, queue: str | None) -> list[Arrival]:
        return [*self.arrivals] if queue is None else self.at(queue)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._consume()
            except (AMQPError, OSError):
                self._ended.wait(0.3)

    def _consume(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1000)
            for queue in self._queues:
                channel.basic_consume(queue, self._note(queue))
            self._consuming.set()
            while not self._ended.is_set():
                connection.process_data_events(time_limit=0.05)

    def _note(self, queue: str) -> Callable[..., None]:
        def note(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
            arrival = Arrival(
                at=datetime.now(UTC),
                queue=queue,
                exchange=method.exchange,
                routing_key=method.routing_key,
                properties=properties,
                body=body,
            )
            if not (method.redelivered and arrival.key in {each.key for each in self.at(queue)}):
                self.arrivals.append(arrival)
            channel.basic_ack(method.delivery_tag)

        return note


def account_of(sent: Sequence[OldMessage], arrivals: Iterable[Arrival]) -> Account:
    """Return what became of messages that were to arrive."""
    wanted, came = {each.key: each for each in sent}, [*arrivals]
    first: dict[str, float] = {}
    for each in came:
        if each.key in wanted:
            first.setdefault(each.key, each.late_s(wanted[each.key]))
    late = sorted(first.values()) or [0.0]
    return Account.of(
        wanted,
        Counter(each.key for each in came),
        early=tuple(sorted(key for key, seconds in first.items() if seconds < 0)),
        median_s=late[len(late) // 2],
        worst_s=late[-1],
    )
