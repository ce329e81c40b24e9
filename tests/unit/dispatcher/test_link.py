"""Messages that the broker gave back: which of them, when several look alike."""

from __future__ import annotations

from migrator.dispatcher.link import _doubt_alike
from migrator.rabbitmq.messages import PublishResult


def test_messages_that_look_alike_are_all_returned_when_one_was() -> None:
    """A copy too many is harmless; one that is thought to be confirmed and is not would be lost."""
    answers = PublishResult(confirmed={1, 3}, returned={2})
    _doubt_alike(answers, {"alike": {1, 2}, "other": {3}})
    assert (answers.confirmed, answers.returned) == ({3}, {1, 2})


def test_messages_without_an_answer_stay_without_one() -> None:
    """What was refused is tried again anyway."""
    answers = PublishResult(confirmed={1}, returned=set())
    _doubt_alike(answers, {"alike": {1, 2}})
    assert (answers.confirmed, answers.returned) == ({1}, set())
