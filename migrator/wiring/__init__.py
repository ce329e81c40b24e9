"""The only place that knows concrete classes: settings go in, assembled parts come out."""

from migrator.wiring.app import FAULT_VARIABLE, App, Plan, fault_point

__all__ = ["FAULT_VARIABLE", "App", "Plan", "fault_point"]
