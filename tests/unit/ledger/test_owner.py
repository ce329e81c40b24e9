"""Who holds a lease, and whether its process is surely gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from migrator.ledger.lease_keeper import current_owner, is_surely_dead


def test_a_process_that_ended_is_dead_and_a_living_one_is_not() -> None:
    """The kernel does not know its id any more, or has given it to another one since."""
    me = current_owner()
    host, namespace, pid, started, chance = me.split("/")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not is_surely_dead(me)
    assert is_surely_dead(f"{host}/{namespace}/{child.pid}/{started}/{chance}")
    assert is_surely_dead(f"{host}/{namespace}/{pid}/1/{chance}")


@pytest.mark.parametrize(
    "name",
    ["elsewhere-00000000/1/4194305/1/abc", "", "x", "a/b/c", "h/n/pid/1/x", "////"],
)
def test_nothing_is_sure_about_other_places_and_names_of_others(name: str) -> None:
    """Another host, boot or process namespace cannot be looked into."""
    assert not is_surely_dead(name)


def test_an_unreadable_start_is_not_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc is hidden, a process that exists counts as alive."""
    owner = current_owner()
    monkeypatch.setattr("migrator.ledger.lease_keeper._started", lambda _pid: "")
    assert not is_surely_dead(owner)
