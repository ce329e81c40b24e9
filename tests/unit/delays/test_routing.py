"""Tests of ``migrator.delays.routing``, and of what is pure in ``probe``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.probe import ProbeRun, ProbeTrip, catching_keys
from migrator.delays.routing import (
    DelaysVersion,
    DelayTooLong,
    address,
    delay_s,
    delivery_binding_key,
    delivery_exchange,
    entry_level,
    infrastructure,
    parse_levels,
    parse_routing_key,
    routing_key,
    suffix_collisions,
)
from migrator.nservicebus.timeouts import MAX_DELAY_S, MAX_QUEUE_NAME_BYTES, QueueName
from tests.unit.nservicebus.samples import vectors

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
V1, V2 = DelaysVersion
DELAYS = st.integers(min_value=0, max_value=MAX_DELAY_S)
NAMES = st.text(min_size=1, max_size=60).map(QueueName)
SPANS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(seconds=MAX_DELAY_S))


def walked(version: DelaysVersion, exchange: str, key: str) -> tuple[list[int], str]:
    """Return the levels in which a broker with our bindings has a message wait, and its end."""
    broker = infrastructure(version)
    queues = {queue.name: queue.arguments for queue in broker.queues}
    levels: list[int] = []
    while exchange != delivery_exchange(version):
        bound = [binding for binding in broker.bindings if binding.source == exchange]
        (hit,) = [binding for binding in bound if catching_keys([binding.key], key)]
        exchange = hit.target.name
        if hit.target_is_queue:
            levels.append(int(exchange[-2:]))
            assert queues[exchange]["x-message-ttl"] == 2 ** levels[-1] * 1000
            exchange = str(queues[exchange]["x-dead-letter-exchange"])
    return levels, exchange


# ── routing keys ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: f"{v['delay_s']}-{v['destination']}")
def test_keys_levels_and_paths_are_the_vendors(vector: dict[str, Any]) -> None:
    """Key, entry exchange of both generations and the levels passed equal the recorded ones."""
    delay, destination = vector["delay_s"], QueueName(vector["destination"])
    assert routing_key(delay, destination) == vector["routing_key"]
    assert entry_level(delay) == vector["level"]
    assert parse_routing_key(vector["routing_key"]) == (delay, destination)
    for version in (V1, V2):
        exchange = address(version, delay, destination).exchange
        assert exchange == vector[f"exchange_{version}"]
        assert walked(version, exchange, vector["routing_key"])[0] == vector["path"]


@given(delay=DELAYS, name=NAMES)
def test_a_routing_key_is_parsed_back(delay: int, name: QueueName) -> None:
    """Any delay and any name, dots and digits included, survive the round trip."""
    assert parse_routing_key(routing_key(delay, name)) == (delay, name)


@given(delay=DELAYS, version=st.sampled_from(DelaysVersion))
def test_a_broker_with_these_bindings_holds_a_message_exactly_its_delay(
    delay: int, version: DelaysVersion
) -> None:
    """At every level exactly one of its two bindings matches: wait here, or go on."""
    start = address(version, delay, QueueName("Sales.Orders"))
    levels, _ = walked(version, start.exchange, start.routing_key)
    assert sum(2**level for level in levels) == delay
    assert levels == sorted(levels, reverse=True)


@pytest.mark.parametrize("delay", [-1, MAX_DELAY_S + 1, 2**40])
def test_a_delay_that_does_not_fit_has_no_key(delay: int) -> None:
    """Nothing is cut off in silence."""
    with pytest.raises(DelayTooLong, match=str(delay)):
        routing_key(delay, QueueName("Sales"))


def test_the_longest_name_makes_a_key_of_255_bytes() -> None:
    """199 bytes of name are what a short string leaves."""
    assert MAX_QUEUE_NAME_BYTES == 199
    assert len(routing_key(1, QueueName("q" * MAX_QUEUE_NAME_BYTES)).encode()) == 255


@pytest.mark.parametrize(
    "key",
    [
        "",
        "Sales",
        "0." * 28,
        "0." * 27 + "Sales",
        "0." * 27 + "2.Sales",
        "0," * 28 + "Sales",
        "0" * 56 + "Sales",
        "0." * 27 + "0-Sales",
        "." * 56 + "Sales",
    ],
)
def test_other_text_is_no_routing_key(key: str) -> None:
    """Only 28 dotted bits and a name are parsed."""
    with pytest.raises(ValueError, match="not a routing key"):
        parse_routing_key(key)


@pytest.mark.parametrize(
    ("key", "catches"),
    [
        ("#", True),
        ("#.Sales", True),
        ("*.#.Sales", True),
        ("#.0.#", True),
        ("0.*.My.Sales", True),
        ("#.#.#", True),
        ("#.*.*.*.*.#", True),
        ("#.sales", False),
        ("#.ales", False),
        ("#.Sales.*", False),
        ("*.Sales", False),
        ("#.*.*.*.*.*.#", False),
        ("", False),
    ],
)
def test_keys_match_as_a_topic_exchange_does(key: str, catches: bool) -> None:
    """A star is one word, a hash any number, none included."""
    assert list(catching_keys([key], "0.1.My.Sales")) == ([key] if catches else [])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"Sales", "My.Sales"}, (("Sales", "My.Sales"),)),
        ({"Sales", "MySales", "sales", "Sales.Orders", "dot."}, ()),
        ({"C", "B.C", "A.B.C"}, (("B.C", "A.B.C"), ("C", "A.B.C"), ("C", "B.C"))),
    ],
)
def test_dotted_suffixes_collide(names: set[str], expected: tuple[tuple[str, str], ...]) -> None:
    """Only whole dotted words count, and case does."""
    assert suffix_collisions(frozenset(map(QueueName, names))) == expected


@given(names=st.frozensets(st.from_regex(r"[ab](\.[ab]){0,3}", fullmatch=True).map(QueueName)))
def test_collisions_are_what_a_topic_exchange_would_deliver_twice(
    names: frozenset[QueueName],
) -> None:
    """A pair collides exactly when the first's binding matches a key of the second."""
    expected = {
        (catcher, caught)
        for catcher in names
        for caught in names - {catcher}
        if catching_keys([delivery_binding_key(catcher)], routing_key(1, caught))
    }
    assert set(suffix_collisions(names)) == expected


# ── delays ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(seconds=5), 5),
        (timedelta(seconds=5, microseconds=1), 6),
        (timedelta(microseconds=1), 1),
        (timedelta(0), 0),
        (-timedelta(microseconds=1), 0),
        (-timedelta(days=4000), 0),
        (timedelta(seconds=2**28 - 1), 268_435_455),
        (timedelta(seconds=2**28 - 2, microseconds=1), 268_435_455),
    ],
)
def test_delays_are_rounded_up_and_never_negative(span: timedelta, expected: int) -> None:
    """A part of a second counts as a whole one; what is overdue waits no time."""
    assert delay_s(NOW + span, now=NOW) == expected


@pytest.mark.parametrize("beyond", [timedelta(microseconds=1), timedelta(days=365)])
def test_a_delay_of_more_than_28_bits_is_refused(beyond: timedelta) -> None:
    """Higher bits would be lost in silence, so there is no such delay."""
    with pytest.raises(DelayTooLong, match="28 bits"):
        delay_s(NOW + timedelta(seconds=MAX_DELAY_S) + beyond, now=NOW)


@given(span=SPANS)
def test_a_message_is_never_early_and_less_than_a_second_late(span: timedelta) -> None:
    """Waiting the delay from now ends at the due time or within the second behind it."""
    waited = timedelta(seconds=delay_s(NOW + span, now=NOW))
    assert timedelta(0) <= waited - span < timedelta(seconds=1)


# ── probes ──────────────────────────────────────────────────────────────────────────────────


def test_a_probe_is_lost_early_or_on_time() -> None:
    """Under a hundredth of a second early is the broker's clock, which counts milliseconds."""
    late_s = (0.1, 2.0, 2.1, -0.001, -0.02, None)
    probes = tuple(ProbeTrip(level=n, late_s=each) for n, each in enumerate(late_s))
    arrivals = ["on_time"] * 4 + ["early", "lost"]
    assert [probe.arrival for probe in probes] == arrivals
    run = ProbeRun(version=V2, probes=probes)
    assert (run.late_levels(after_s=2), run.lost, run.is_fine) == ([2, 4, 5], 1, False)
    assert ProbeRun(version=V2, probes=probes[:4]).is_fine


@pytest.mark.parametrize(("text", "levels"), [("0", [0]), (" 27, 3,3 ", [3, 27])])
def test_levels_are_read(text: str, levels: list[int]) -> None:
    """In order, each once."""
    assert parse_levels(text) == levels


@pytest.mark.parametrize("text", ["", ",", "1,,2", "28", "-1", "a", "1 2", "٣", "1.0"])
def test_what_is_no_list_of_levels_is_refused(text: str) -> None:
    """It says how they are written."""
    with pytest.raises(ValueError, match="levels from 0 to 27"):
        parse_levels(text)
