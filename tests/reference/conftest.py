"""A whole small system for endpoint Orders, whose input queue is Sales."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import new_rig, rig
from tests.e2e.rig import Rig

__all__ = ["new_rig", "rig"]

QUEUES = ("Sales", "Client", "SalesW", "ClientW", "SalesE")
_SATELLITES = ("Sales.Timeouts", "Sales.TimeoutsDispatcher", "error")


@pytest.fixture
def orders(rig: Rig, tmp_path: Path) -> Callable[[str], Rig]:
    """Prepares everything for a mode of the endpoint."""

    def prepare(mode: str) -> Rig:
        rig.endpoint = "Orders"
        rig.config = tmp_path / "migrator.toml"
        rig.config.write_text(
            f'[[endpoints]]\nname = "Orders"\nqueue = "Sales"\nmode = "{mode}"\n'
            '[handover]\ncutoff = "0s"\nsweep_interval = "0.2s"\n'
        )
        rig.prepare(*QUEUES, *_SATELLITES)
        return rig

    return prepare
