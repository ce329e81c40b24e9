"""The reference: a plain loop that publishes each message when it is due, from memory.

What a good engineer would write in an afternoon: SelectConnection, confirms, mandatory, one timer
for the next message. No store, no ledger, nothing to recover.
"""

from __future__ import annotations

import argparse
import json
import time

import pika

from benchmarks.plain_publisher import headers


class Timer:
    """Publishes messages at their times and stops once each was confirmed."""

    def __init__(self, url: str, queue: str, due: list[float], body: bytes) -> None:
        """Publish to the fanout exchange *queue* at the Unix times *due*, in rising order."""
        self._queue = queue
        self._due = due
        self._body = body
        self._messages = [headers() for _ in due]
        self._sent = 0
        self._unanswered: set[int] = set()
        self._connection = pika.SelectConnection(
            pika.URLParameters(url), on_open_callback=self._opened
        )

    def run(self) -> dict[str, float]:
        """Return the due time of each message by its id, once all were confirmed."""
        self._connection.ioloop.start()
        ids = (str(each["NServiceBus.MessageId"]) for each in self._messages)
        return dict(zip(ids, self._due, strict=True))

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        channel.confirm_delivery(self._answered)
        self._send_due()

    def _send_due(self) -> None:
        now = time.time()
        while self._sent < len(self._due) and self._due[self._sent] <= now:
            self._publish(self._messages[self._sent])
        if self._sent < len(self._due):
            wait_s = max(self._due[self._sent] - time.time(), 0.0)
            self._connection.ioloop.call_later(wait_s, self._send_due)

    def _publish(self, stored: dict[str, object]) -> None:
        properties = pika.BasicProperties(
            headers=stored,
            message_id=str(stored["NServiceBus.MessageId"]),
            delivery_mode=2,
            content_type="application/json",
            type="Acme.Billing.Remind",
        )
        self._channel.basic_publish(self._queue, "", self._body, properties, mandatory=True)
        self._sent += 1
        self._unanswered.add(self._sent)

    def _answered(self, frame: pika.frame.Method) -> None:
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unanswered = {each for each in self._unanswered if each > tag}
        else:
            self._unanswered.discard(tag)
        if self._sent == len(self._due) and not self._unanswered:
            self._connection.close()
            self._connection.ioloop.stop()


def main() -> None:
    """Publish, and print the due times by message id as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("queue")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first-at", type=float, required=True, help="Unix time")
    parser.add_argument("--span-s", type=float, default=60.0)
    parser.add_argument("--body-bytes", type=int, default=500)
    given = parser.parse_args()
    due = [given.first_at + given.span_s * n / given.count for n in range(given.count)]
    timer = Timer(given.url, given.queue, due, b"x" * given.body_bytes)
    print(json.dumps(timer.run()))


if __name__ == "__main__":
    main()
