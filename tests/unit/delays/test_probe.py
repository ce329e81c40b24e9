"""Tests of ``migrator.delays.probe``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.probe import Arrival, Probe, ProbeRun, catching_keys, probe_document
from migrator.delays.routing import (
    DelaysVersion,
    address,
    delivery_binding_key,
    infrastructure,
    levels_passed,
    parse_levels,
    probe_delay_s,
    suffix_collisions,
)
from migrator.nservicebus.timeouts import QueueName

OURS = QueueName("migrator.canary.0123456789abcdef01234567")


@pytest.mark.parametrize("level", range(28))
def test_a_probe_waits_in_its_level_alone(level: int) -> None:
    """So that lateness is that of one level."""
    assert list(levels_passed(probe_delay_s(level))) == [level]


@pytest.mark.parametrize(
    ("late_s", "arrival"),
    [
        (None, Arrival.LOST),
        (0.02, Arrival.ON_TIME),
        (20.0, Arrival.ON_TIME),
        (-0.001, Arrival.ON_TIME),  # the broker's clock counts milliseconds
        (-0.02, Arrival.EARLY),
    ],
)
def test_a_probe_is_lost_early_or_on_time(late_s: float | None, arrival: Arrival) -> None:
    """Only the last is fine."""
    probe = Probe(level=3, late_s=late_s)
    assert (probe.delay_s, probe.arrival) == (8, arrival)
    good = Probe(level=0, late_s=0.0)
    flight = ProbeRun(version=DelaysVersion.V2, probes=(good, probe))
    assert flight.is_fine is (arrival is Arrival.ON_TIME)


def test_levels_are_late_when_their_probe_is_lost_early_or_over_the_limit() -> None:
    """And only those are named."""
    late_s = (0.1, 2.0, 2.1, -0.5, None)
    probes = tuple(Probe(level=n, late_s=each) for n, each in enumerate(late_s))
    flight = ProbeRun(version=DelaysVersion.V2, probes=probes)
    assert flight.late_levels(after_s=2) == [2, 3, 4]
    assert flight.lost == 1


def test_a_probe_is_written_down() -> None:
    """As plain values, seconds cut to what is known."""
    assert probe_document(Probe(level=1, late_s=0.012345)) == {
        "level": 1,
        "delay_s": 2,
        "late_s": 0.0123,
        "arrival": "on_time",
    }
    assert probe_document(Probe(level=0, late_s=None))["late_s"] is None


@pytest.mark.parametrize(
    ("text", "levels"), [("0", [0]), ("0,1,2,3", [0, 1, 2, 3]), (" 27, 3,3 ", [3, 27])]
)
def test_levels_are_read(text: str, levels: list[int]) -> None:
    """In order, each once."""
    assert parse_levels(text) == levels


@pytest.mark.parametrize("text", ["", ",", "1,,2", "28", "-1", "a", "1 2", "٣", "1.0"])
def test_what_is_no_list_of_levels_is_refused(text: str) -> None:
    """It says how they are written."""
    with pytest.raises(ValueError, match="levels from 0 to 27"):
        parse_levels(text)


@pytest.mark.parametrize(
    ("key", "catches"),
    [
        ("#", True),
        ("#.Sales", True),
        ("*.#.Sales", True),
        ("#.0.#", True),
        ("0.*.My.Sales", True),
        ("0.1.My.Sales", True),
        ("#.#.#", True),
        ("#.*.*.*.*.#", True),
        ("#.sales", False),
        ("#.ales", False),
        ("#.Sales.*", False),
        ("*.Sales", False),
        ("#.*.*.*.*.*.#", False),
        ("", False),
        ("1.#", False),
    ],
)
def test_keys_match_as_a_topic_exchange_does(key: str, catches: bool) -> None:
    """A star is one word, a hash any number, none included."""
    assert list(catching_keys([key], "0.1.My.Sales")) == ([key] if catches else [])


@given(st.integers(0, 2**28 - 1), st.sampled_from(DelaysVersion))
def test_bindings_of_the_levels_lead_each_key_down_its_own_way(
    delay_s: int, version: DelaysVersion
) -> None:
    """At every level exactly one of its two bindings matches: wait here, or go on."""
    key = address(version, delay_s, OURS).routing_key
    delays = infrastructure(version)
    waits = [
        binding.target
        for binding in delays.bindings
        if binding.target_is_queue and catching_keys([binding.key], key)
    ]
    assert len(waits) == len(list(levels_passed(delay_s)))
    for exchange in delays.exchanges[1:]:
        keys = [binding.key for binding in delays.bindings if binding.source == exchange]
        assert len(catching_keys(keys, key)) == 1


def test_our_name_catches_nobodys_messages() -> None:
    """And nobody's name is a suffix of it, unless he knows its last word."""
    others = {"canary", "migrator.canary", "migrator", "Sales", "migrator.canary.other"}
    names = frozenset(map(QueueName, others)) | {OURS}
    assert not [pair for pair in suffix_collisions(names) if OURS in pair]
    key = address(DelaysVersion.V2, 1, OURS).routing_key
    bound = [delivery_binding_key(name) for name in names]
    assert catching_keys(bound, key) == [delivery_binding_key(OURS)]
