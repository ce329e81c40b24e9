"""Settings: defaults < ``migrator.toml`` < ``MIGRATOR_*`` environment < command options.

``settings`` has the sections, from ``servers``, ``work`` and ``process``, with the types of
``values``. ``load`` merges the sources and reports every problem at once, ``describe`` prints the
result. Start with ``load``. No capability or platform imports settings: they get plain values.
"""

from migrator.config.describe import Row, describe, show_text
from migrator.config.load import Loaded, load
from migrator.config.process import Hooks, Log, LogFormat, Telemetry, Web
from migrator.config.secrets import mask, required_secret
from migrator.config.servers import Broker, Store, Tls
from migrator.config.settings import Settings
from migrator.config.work import (
    Dispatch,
    Endpoint,
    EndpointMode,
    HandOver,
    NearDue,
    OnCritical,
    Throttle,
)

__all__ = [
    "Broker",
    "Dispatch",
    "Endpoint",
    "EndpointMode",
    "HandOver",
    "Hooks",
    "Loaded",
    "Log",
    "LogFormat",
    "NearDue",
    "OnCritical",
    "Row",
    "Settings",
    "Store",
    "Telemetry",
    "Throttle",
    "Tls",
    "Web",
    "describe",
    "load",
    "mask",
    "required_secret",
    "show_text",
]
