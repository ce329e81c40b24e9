"""What is half done in a ledger whose timeouts a RavenDB has, as a process that died leaves it."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from tests.contract.site import NOW
from tests.support.ravendb import DATABASE, StrictRaven


def store_timeout(server: StrictRaven, id_: str) -> None:
    """Store a timeout of Sales that is due in an hour."""
    content = {
        "Destination": "Billing",
        "SagaId": "00000000-0000-0000-0000-000000000000",
        "State": base64.b64encode(b"x").decode(),
        "Time": (NOW + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.0000000Z"),
        "OwningTimeoutManager": "Sales",
        "Headers": {"NServiceBus.MessageId": "m"},
    }
    server.store(id_, content, **{"@collection": "TimeoutDatas"})


def use(server: StrictRaven, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program work on *server* and the ledger at *ledger_url*."""
    monkeypatch.setenv("MIGRATOR_LEDGER__URL", ledger_url)
    monkeypatch.setenv("MIGRATOR_STORE__KIND", "ravendb")
    monkeypatch.setenv("MIGRATOR_STORE__URL", server.url)
    monkeypatch.setenv("MIGRATOR_STORE__RAVENDB__DATABASE", DATABASE)
