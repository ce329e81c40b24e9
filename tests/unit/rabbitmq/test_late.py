"""Messages to queues that answer nothing: sent once more only when nothing can be known of them."""

from __future__ import annotations

import pytest

from migrator.rabbitmq.late import LateAnswers, Sent
from migrator.rabbitmq.messages import PublishResult


@pytest.mark.parametrize(
    ("answer", "known", "heard"),
    [
        ("confirmed", Sent.SURELY, {"Hung"}),
        ("returned", Sent.NOT, set()),
        ("refused", Sent.NOT, set()),
        ("unknown", Sent.NOT, set()),
    ],
)
def test_an_answer_that_comes_late_decides_what_becomes_of_the_row(
    answer: str, known: Sent, heard: set[str]
) -> None:
    """Until then it may be anywhere; that its queue answered is said once."""
    late, result = LateAnswers[str](), PublishResult()
    late.note({"row": 7}, result, "Hung")
    assert (late.sent("row"), late.sent("other")) == (Sent.MAYBE, Sent.NOT)
    assert (late.waiting(), late.take_heard()) == ({"Hung"}, set())
    getattr(result, answer).add(7)
    assert (late.sent("row"), late.waiting()) == (known, set())
    assert late.take_heard() == heard
    assert late.take_heard() == ()
    late.forget(["row"])
    assert not late


def test_a_destination_is_heard_of_when_it_has_answered_everything() -> None:
    """Its rows would only wait again otherwise."""
    late, result = LateAnswers[str](), PublishResult()
    late.note({"first": 1, "second": 2}, result, "Hung")
    late.note({"third": 3}, result, "Other")
    result.confirmed |= {1, 3}
    assert late.take_heard() == {"Other"}
    assert late.waiting() == {"Hung"}
    assert not late.waiting(for_at_most_s=-1.0)
    result.confirmed.add(2)
    assert late.take_heard() == {"Hung"}
