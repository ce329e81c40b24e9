"""What is imported elsewhere only when it is asked for, imported at once.

A daemon lives for months, and its files may be replaced by an upgrade meanwhile. A module that is
imported only then would be of another version than those that call it. A test finds what is
missing here.
"""

from __future__ import annotations

from apscheduler.triggers import cron

from migrator.broker import facts as broker_facts
from migrator.broker import link, management, scan
from migrator.ledger import (
    adoption,
    batches,
    books,
    clock,
    facts,
    hand_overs,
    identity,
    quarantine,
    returning,
    runs,
    upkeep,
)
from migrator.wiring import stores

__all__ = [
    "adoption",
    "batches",
    "books",
    "broker_facts",
    "clock",
    "cron",
    "facts",
    "hand_overs",
    "identity",
    "link",
    "management",
    "quarantine",
    "returning",
    "runs",
    "scan",
    "stores",
    "upkeep",
]
