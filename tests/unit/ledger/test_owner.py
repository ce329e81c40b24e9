"""Who holds a lease, and whether its process is surely gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from migrator.ledger.lease_keeper import current_owner, is_surely_dead


def test_a_living_process_is_not_dead() -> None:
    """This very process is alive, by whatever name it goes."""
    assert not is_surely_dead(current_owner())


def test_a_process_that_ended_is_dead() -> None:
    """The kernel does not know its id any more, so its sockets are closed."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host, namespace, _, started, chance = current_owner().split("/")
    assert is_surely_dead(f"{host}/{namespace}/{child.pid}/{started}/{chance}")


def test_a_process_id_that_is_used_again_is_not_the_same_process() -> None:
    """Same id, other start: the one that held the lease is gone."""
    host, namespace, pid, _, chance = current_owner().split("/")
    assert is_surely_dead(f"{host}/{namespace}/{pid}/1/{chance}")


@pytest.mark.parametrize("place", ["elsewhere-00000000/1", "other/4026531836"])
def test_nothing_is_sure_about_other_places(place: str) -> None:
    """Another host, boot or process namespace cannot be looked into."""
    assert not is_surely_dead(f"{place}/{2**22 + 1}/1/abc")


@pytest.mark.parametrize("name", ["", "x", "a/b/c", "h/n/pid/1/x", "////"])
def test_names_of_others_are_not_dead(name: str) -> None:
    """What was not written by us is left alone."""
    assert not is_surely_dead(name)


def test_an_unreadable_start_is_not_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc is hidden, a process that exists counts as alive."""
    owner = current_owner()
    monkeypatch.setattr("migrator.ledger.lease_keeper._started", lambda _pid: "")
    assert not is_surely_dead(owner)
    assert str(os.getpid()) in owner
