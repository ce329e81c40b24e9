"""What becomes of messages that end a channel."""

from __future__ import annotations

from migrator.dispatcher.failures import PoisonMessageDetector
from migrator.dispatcher.link import Delivery
from migrator.dispatcher.outbox import Copy
from migrator.errors import AccessRefused
from migrator.nservicebus.incoming import IncomingMessage
from migrator.nservicebus.recoverability import retry_copy
from migrator.nservicebus.timeouts import QueueName


def came_back(count: int, problem: str | None = None) -> Copy:
    """Return the item of a message that a quorum queue has delivered for the nth time."""
    message = IncomingMessage(
        message_id="m-1",
        correlation_id=None,
        type=None,
        reply_to=None,
        content_type=None,
        delivery_mode=2,
        raw_headers={} if problem else {"Some": "header", "x-delivery-count": count},
        body=b"body",
        raw_properties=b"the same" if problem else b"%d" % count,
        problem=problem,
    )
    delivery = Delivery(queue=QueueName("Q"), tag=count, message=message, is_redelivered=True)
    copy = retry_copy(message, retries=0)
    return Copy(delivery=delivery, message=copy, queue="retry", is_final=False)


def test_a_suspect_is_known_again_when_it_comes_back() -> None:
    """Although the broker counts, in its headers, how often it came back."""
    detector = PoisonMessageDetector()
    detector.note([came_back(0), came_back(1, "unreadable")], AccessRefused("no"))
    first = came_back(1)
    assert detector.chosen([came_back(2, "unreadable"), first]) != [first]
    detector.note([first], AccessRefused("no"))
    assert detector.verdict(came_back(2)) is not None
    assert detector.verdict(came_back(2)) is None
