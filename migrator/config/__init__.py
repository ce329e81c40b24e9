"""Settings: defaults < ``migrator.toml`` < ``MIGRATOR_*`` environment < command options.

``settings`` has the sections, from ``servers`` and ``work``, with the types of ``values``. ``load``
merges the sources, reports every problem at once, and tells what is in force. Start with ``load``.
No capability or platform imports settings: they get plain values.
"""

from migrator.config.load import Loaded, describe, load, show_text
from migrator.config.secrets import mask, required_secret
from migrator.config.settings import Hooks, Settings, Telemetry
from migrator.config.work import Endpoint, EndpointMode, HandOver, NearDue, Throttle

__all__ = [
    "Endpoint",
    "EndpointMode",
    "HandOver",
    "Hooks",
    "Loaded",
    "NearDue",
    "Settings",
    "Telemetry",
    "Throttle",
    "describe",
    "load",
    "mask",
    "required_secret",
    "show_text",
]
