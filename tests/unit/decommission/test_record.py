"""What was cut can be read back from the audit trail."""

from __future__ import annotations

import json

from migrator.decommission.record import bindings_record, read_bindings
from tests.unit.decommission.decommissions import OWN_BINDINGS, SATELLITE_BINDINGS


def test_bindings_survive_as_json() -> None:
    """With both kinds of ends, keys and arguments."""
    given = (*SATELLITE_BINDINGS, *OWN_BINDINGS)
    assert read_bindings(json.loads(json.dumps(bindings_record(given)))) == given
