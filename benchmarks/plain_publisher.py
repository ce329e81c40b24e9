"""The reference: a plain pika publisher with a confirm window, into the native exchanges.

What a good engineer would write in an afternoon: SelectConnection, confirms, mandatory, at most
*window* messages without an answer. No ledger, no claim, no conversion, nothing to recover.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from datetime import UTC, datetime

import pika

from migrator.delays.routing import DelaysVersion, address
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time
from tests.e2e.rows import usual_headers


def headers() -> dict[str, object]:
    """Return the fifteen headers of a usual message."""
    now = build_wire_time(datetime.now(UTC))
    usual = usual_headers()
    return usual | {
        "NServiceBus.TimeSent": now,
        "NServiceBus.DeliverAt": now,
        "NServiceBus.RelatedToTimeoutId": usual["NServiceBus.MessageId"],
        "NServiceBus.Transport.RabbitMQ.DelayInSeconds": 86_400,
    }


class Publisher:
    """Publishes *count* messages and stops once each was confirmed."""

    def __init__(self, url: str, *, count: int, window: int, body_bytes: int) -> None:
        self._count = count
        self._window = window
        self._body = b"x" * body_bytes
        self._dice = random.Random(1)
        self._sent = 0
        self._unanswered: set[int] = set()
        self._began = 0.0
        self.seconds = 0.0
        self._connection = pika.SelectConnection(
            pika.URLParameters(url), on_open_callback=self._opened
        )

    def run(self) -> float:
        """Return messages per second."""
        self._connection.ioloop.start()
        return self._count / self.seconds

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        channel.confirm_delivery(self._answered)
        self._began = time.perf_counter()
        self._fill()

    def _fill(self) -> None:
        while self._sent < self._count and len(self._unanswered) < self._window:
            delay = self._dice.randrange(86_400, 86_400 * 900)
            to = address(DelaysVersion.V2, delay, QueueName("Billing"))
            stored = headers()
            properties = pika.BasicProperties(
                headers=stored,
                message_id=str(stored["NServiceBus.MessageId"]),
                delivery_mode=2,
                content_type="application/json",
                type="Acme.Billing.Remind",
            )
            self._channel.basic_publish(
                to.exchange, to.routing_key, self._body, properties, mandatory=True
            )
            self._sent += 1
            self._unanswered.add(self._sent)

    def _answered(self, frame: pika.frame.Method) -> None:
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unanswered = {each for each in self._unanswered if each > tag}
        else:
            self._unanswered.discard(tag)
        if self._sent == self._count and not self._unanswered:
            self.seconds = time.perf_counter() - self._began
            self._connection.close()
            self._connection.ioloop.stop()
            return
        self._fill()


def main() -> None:
    """Publish, and print the rate as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=2000)
    parser.add_argument("--body-bytes", type=int, default=500)
    given = parser.parse_args()
    publisher = Publisher(
        given.url, count=given.count, window=given.window, body_bytes=given.body_bytes
    )
    print(json.dumps({"per_second": publisher.run(), "seconds": publisher.seconds}))


if __name__ == "__main__":
    main()
