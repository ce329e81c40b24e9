"""The only place that knows concrete classes: settings go in, assembled parts come out.

``app`` assembles what every verb may need, ``dispatchers`` what is needed to be the timeout
manager of endpoints.
"""

from migrator.wiring.app import FAULT_VARIABLE, App, Plan, fault_point
from migrator.wiring.dispatchers import DispatcherPlan, DispatcherWiring

__all__ = ["FAULT_VARIABLE", "App", "DispatcherPlan", "DispatcherWiring", "Plan", "fault_point"]
