"""Tests of ``migrator.rabbitmq.event_loop`` that need no broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from migrator.errors import ConfigError, Interrupted
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings, TlsFiles
from migrator.rabbitmq.event_loop import Connection, EventLoop


def test_the_guard_ends_a_wait() -> None:
    """What it raises comes out, however long the wait would have been."""

    def guard() -> None:
        raise Interrupted("asked twice to stop")

    with closing(EventLoop(guard)) as pump, pytest.raises(Interrupted):
        pump.run(lambda: False, 3600)


def test_a_lane_that_waits_for_its_broker_shows_signs_of_life() -> None:
    """At each step, whether anything happens or not."""
    beats: list[None] = []
    with closing(EventLoop(lambda: beats.append(None))) as pump:
        for _ in range(5):
            before = len(beats)
            pump.run(lambda: False, 0.02)
            assert len(beats) > before


def test_a_certificate_that_is_away_for_a_moment_is_no_bug(tmp_path: Path) -> None:
    """While it is renewed, say: there is no connection to be closed, and the lane tries again."""
    settings = ConnectionSettings(
        nodes=parse_addresses("amqps://u:p@localhost/%2F"),
        tls=TlsFiles(ca_file=tmp_path / "ca.pem"),
    )
    pump = EventLoop()
    with pytest.raises(ConfigError, match="cannot be used"):
        Connection(pump, settings, "test")
    pump.close()
