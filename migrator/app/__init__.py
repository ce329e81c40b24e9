"""The only place that knows concrete classes: settings go in, assembled parts come out.

``app`` assembles what every verb may need, ``stores`` what each kind of legacy store brings,
``dispatchers`` what is needed to be the timeout manager of endpoints.
"""

from migrator.app.app import App, Plan
from migrator.app.faults import FAULT_VARIABLE, fault_point
from migrator.app.telemetry import tracing

__all__ = ["FAULT_VARIABLE", "App", "Plan", "fault_point", "tracing"]
