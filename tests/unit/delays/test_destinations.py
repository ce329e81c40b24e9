"""What is remembered of destinations, without a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.delays.destinations import DestinationAnswers
from migrator.nservicebus.timeouts import QueueName

BILLING, SALES = QueueName("Billing"), QueueName("Sales")


class _Asked(DestinationAnswers[str]):
    """Somebody else finds, while the first question is answered, that one answer is wrong."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.asked = 0

    def _ask(self, names: Sequence[QueueName]) -> Mapping[QueueName, str]:
        self.asked += 1
        if self.asked == 1:
            self.forget([BILLING])
        return dict.fromkeys(names, f"answer {self.asked}")


def test_what_is_forgotten_while_it_is_asked_for_is_asked_again() -> None:
    """An answer may be older than the message that came back; all others are remembered."""
    destinations = _Asked()
    told = [destinations.answers([BILLING, SALES]) for _ in range(3)]
    assert [each[BILLING] for each in told] == ["answer 1", "answer 2", "answer 2"]
    assert [each[SALES] for each in told] == ["answer 1", "answer 1", "answer 1"]
