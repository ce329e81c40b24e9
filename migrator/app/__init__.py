"""The composition root: settings go in, assembled parts come out.

It picks the concrete classes; capabilities get plain values, never settings. Start with ``app``:
it has what every verb may need. ``commands`` builds recall, rollback and verify, ``stores`` opens
each kind of legacy store, ``dispatchers`` builds the timeout manager's side.
"""

from migrator.app.app import FAULT_VARIABLE, App, fault_point
from migrator.app.telemetry import tracing

__all__ = ["FAULT_VARIABLE", "App", "fault_point", "tracing"]
