"""Settings: defaults < ``migrator.toml`` < ``MIGRATOR_*`` environment < command options.

``settings`` puts the sections together: ``servers``, ``work`` and ``process``, made of ``values``.
``load`` lays the sources over each other and reports every problem at once, ``describe`` tells
people the result. Settings stop at ``app`` and ``cli``: everything below gets plain values.
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
