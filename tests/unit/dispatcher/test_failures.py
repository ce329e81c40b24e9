"""What becomes of messages that end a channel, and of those the broker gave back."""

from __future__ import annotations

from migrator.dispatcher.failures import PoisonMessageDetector
from migrator.dispatcher.link import Delivery, _doubt_alike
from migrator.dispatcher.outbox import Copy
from migrator.errors import AccessRefused
from migrator.nservicebus.incoming import IncomingMessage
from migrator.nservicebus.recoverability import retry_copy
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.messages import PublishResult


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


def test_messages_that_look_alike_are_all_returned_when_one_was() -> None:
    """A copy too many is harmless; one that is thought to be confirmed and is not would be lost.

    What was refused has no answer, and is tried again anyway.
    """
    answers = PublishResult(confirmed={1, 3, 4}, returned={2})
    _doubt_alike(answers, {"alike": {1, 2}, "other": {3}, "refused": {4, 5}})
    assert (answers.confirmed, answers.returned) == ({3, 4}, {1, 2})
