"""Names fit the broker, and no two things share one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from migrator.rabbitmq.names import retry_queue

_QUEUES = st.text(min_size=1, max_size=255)


def test_a_retry_queue_says_whose_it_is_and_how_long() -> None:
    """Operators read queue and delay in the name."""
    assert retry_queue("Billing.Timeouts", 60) == "migrator.retry.Billing.Timeouts.60"


@given(_QUEUES, st.integers(1, 2**28))
def test_a_name_fits_and_stays_the_same(queue: str, delay_s: int) -> None:
    """Any queue's name, of any characters, gives one the broker takes, each time the same."""
    name = retry_queue(queue, delay_s)
    assert len(name.encode()) <= 255
    assert name == retry_queue(queue, delay_s)
    assert name.startswith("migrator.retry.")
    assert name.endswith(f".{delay_s}")


def test_long_names_are_told_apart() -> None:
    """Names that differ only where they are cut, and delays, give different queues."""
    long = "☃" * 84
    names = {retry_queue(long + end, delay_s) for end in ("a", "b", "") for delay_s in (1, 10)}
    assert len(names) == 6
