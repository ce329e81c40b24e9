"""Tests of ``migrator.service.notify``, on real sockets."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from migrator.service import notify
from tests.support.service_manager import ServiceManager as Listener

Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]


@pytest.mark.parametrize("is_abstract", [False, True], ids=["file", "abstract"])
def test_each_message_is_one_datagram(tmp_path: Path, wait_for: WaitFor, is_abstract: bool) -> None:
    """In the words of the protocol; a text is made one line."""
    address = f"@migrator-{secrets.token_hex(6)}" if is_abstract else tmp_path / "notify"
    with Listener(address) as listener:
        manager = notify.ServiceManager({"NOTIFY_SOCKET": str(address)})
        assert manager.is_there
        manager.ready()
        manager.status("5 handed over\nREADY=0\n  größer")
        manager.alive()
        manager.extend(timedelta(seconds=1.5))
        manager.stopping()
        wait_for(lambda: len(listener.heard) == 5)
    assert listener.messages() == [
        "READY=1",
        "STATUS=5 handed over READY=0 größer",
        "WATCHDOG=1",
        "EXTEND_TIMEOUT_USEC=1500000",
        "STOPPING=1",
    ]


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1234"])
def test_without_a_manager_nothing_happens(address: str | None, lines: Lines) -> None:
    """Nor with one that is reached in a way we do not know."""
    environ = {"WATCHDOG_USEC": "1000000"} | ({} if address is None else {"NOTIFY_SOCKET": address})
    manager = notify.ServiceManager(environ)
    manager.ready()
    manager.status("x")
    assert (manager.is_there, manager.watchdog) == (False, None)
    assert not lines("notify_failed")


def test_a_manager_that_went_away_is_told_once_and_ends_nothing(
    tmp_path: Path, lines: Lines
) -> None:
    """Until it is back, and goes away again."""
    address = tmp_path / "notify"
    manager = notify.ServiceManager({"NOTIFY_SOCKET": str(address)})
    manager.ready()
    manager.alive()
    assert len(lines("notify_failed")) == 1
    with Listener(address):
        manager.alive()
    address.unlink()
    manager.alive()
    assert len(lines("notify_failed")) == 2


def test_a_manager_that_does_not_read_holds_nothing_up(
    tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its socket is full, a message is given up after a while."""
    monkeypatch.setattr(notify, "_PATIENCE_S", 0.05)
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(address))
        manager = notify.ServiceManager({"NOTIFY_SOCKET": str(address)})
        began_s = time.monotonic()
        while not lines("notify_failed"):
            manager.status("x" * 1000)
            assert time.monotonic() - began_s < 30
        asked_s = time.monotonic()
        manager.alive()
        assert time.monotonic() - asked_s < 20


@pytest.mark.parametrize(
    ("environ", "watchdog"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, timedelta(seconds=3)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, timedelta(seconds=3)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
    ],
)
def test_the_watchdog_is_read(environ: dict[str, str], watchdog: timedelta | None) -> None:
    """Ours only, and only when it says how long."""
    manager = notify.ServiceManager({"NOTIFY_SOCKET": "/run/x", **environ})
    assert manager.watchdog == watchdog
