"""What is imported elsewhere only when it is asked for, imported at once.

A daemon lives for months, and its files may be replaced by an upgrade meanwhile. A module that is
imported only then would be of another version than those that call it. A test finds what is
missing here.
"""

from __future__ import annotations

from apscheduler.triggers import cron

from migrator.app import stores
from migrator.delays import scan
from migrator.handover import link
from migrator.ledger import (
    adoption,
    batches,
    clock,
    identity,
    leases,
    quarantine,
    runs,
)
from migrator.ledger import operator_actions as upkeep
from migrator.ledger import queries as books
from migrator.preflight import broker as broker_facts
from migrator.preflight import queries as facts
from migrator.rabbitmq import management

__all__ = [
    "adoption",
    "batches",
    "books",
    "broker_facts",
    "clock",
    "cron",
    "facts",
    "identity",
    "leases",
    "link",
    "management",
    "quarantine",
    "runs",
    "scan",
    "stores",
    "upkeep",
]
