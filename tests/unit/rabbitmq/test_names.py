"""Names fit the broker, and no two things share one; rights allow what is needed, and no more."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.routing import DelaysVersion, delays_prefix
from migrator.rabbitmq.names import (
    Grants,
    Looking,
    grants_text,
    least_grants,
    looking,
    retry_queue,
)

V1, V2 = map(delays_prefix, (DelaysVersion.V1, DelaysVersion.V2))
_QUEUES = st.text(min_size=1, max_size=255)


@given(_QUEUES, st.integers(1, 2**28))
def test_a_name_fits_and_stays_the_same(queue: str, delay_s: int) -> None:
    """Any queue's name gives one the broker takes, each time the same, with the delay in it."""
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


# ── rights ──────────────────────────────────────────────────────────────────────────────────


def may(pattern: str, *names: str) -> list[bool]:
    """Return for each of *names* whether *pattern* allows it."""
    return [re.match(pattern, name) is not None for name in names]


def test_patterns_cover_our_entities_and_the_delays() -> None:
    """Our own names may be configured, the delays of one generation only read and written."""
    level, old = "nsb.v2.delay-level-01", "nsb.delay-level-01"
    grants = least_grants(V2, destinations=["Sales.Orders"])
    assert may(grants.configure, "migrator.staging.abc.1", level) == [True, False]
    assert may(grants.write, level, "Sales.Orders", "Sales.OrdersX", "SalesXOrders") == [
        True,
        True,
        False,
        False,
    ]
    assert may(grants.read, "nsb.v2.delay-delivery", old, "Sales.Orders") == [True, False, False]
    assert may(least_grants(V1).read, level, old) == [False, True]
    assert may(least_grants(V2, creates_delays=True).configure, level) == [True]


def test_unknown_destinations_need_a_wide_pattern() -> None:
    """Binding whatever turns up needs the right to write to every name, unless nobody binds."""
    assert least_grants(V2).write == ".*"
    assert least_grants(V2, binds_destinations=False).write != ".*"
    assert least_grants(V2, binds_destinations=False, sends_when_due=True).write == ".*"
    named = [least_grants(V2, destinations=["B"], sends_when_due=due) for due in (False, True)]
    assert [may(each.write, "amq.default") for each in named] == [[False], [True]]


def test_a_dispatcher_consumes_satellites_and_writes_to_destinations() -> None:
    """Though nobody is bound; what fails leaves by the default exchange, and nothing else may."""
    names = ("Sales.Timeouts", "Sales.TimeoutsDispatcher")
    grants = least_grants(V2, destinations=["Billing"], binds_destinations=False, satellites=names)
    assert may(grants.read, *names, "Sales.TimeoutsX", "Billing") == [True, True, False, False]
    assert may(grants.write, "Billing", "amq.default", names[0]) == [True, True, False]
    retries = "migrator.retry.Sales.Timeouts.10"
    assert may(grants.configure, retries, names[0]) == [True, False]


def test_who_may_ask_whether_a_queue_exists_depends_on_the_version() -> None:
    """Everybody, who may configure it, or who has any right on it: then write is given."""
    free, strict, newest = map(looking, [(3, 10, 8), (4, 3, 0), (4, 3, 6)])
    assert [looking((4, 2, 6)), looking((4, 2, 5)), looking((4, 2, 7))] == [strict, free, newest]

    def least(looks: Looking, *names: str, **more: Any) -> Grants:
        return least_grants(
            V2, destinations=names or None, looks=looks, looked_at=["error"], **more
        )

    asked = ("Billing", "error", "Stock")
    assert may(least(free, "Billing").write, *asked) == [True, False, False]
    assert may(least(newest, "Billing").write, *asked) == [True, True, False]
    assert may(least(newest, "Billing", binds_destinations=False).write, *asked)[0]
    assert may(least(strict, "Billing").configure, *asked) == [True, True, False]
    assert may(least(strict, "Billing").write, *asked) == [True, False, False]
    assert least(strict).configure == ".*"
    levels = "nsb.v2.delay-level-01", "nsb.delay-level-01"
    assert may(least(newest, "Billing").read, *levels) == [True, True]
    assert may(least(newest, "Billing").configure, *levels) == [False, False]


def test_the_text_is_a_command_a_shell_takes() -> None:
    """Names and patterns are quoted for a shell."""
    text = grants_text(least_grants(V2), user="joe's", vhost="/")
    assert text.splitlines()[-1].startswith("rabbitmqctl set_permissions -p / 'joe'")
