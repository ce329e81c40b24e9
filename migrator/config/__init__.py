"""Settings: defaults < ``migrator.toml`` < ``MIGRATOR_*`` environment < command options.

``models`` says what can be set, larger sections have modules of their own; ``sources`` says where
values come from, ``load`` puts the two together and reports every problem at once, ``describe``
tells people the result. Settings stop at ``wiring``: everything below gets plain values.
"""

from migrator.config.describe import Row, describe, show_text
from migrator.config.dispatch import Dispatch, OnCritical
from migrator.config.handover import HandOver, NearDue
from migrator.config.hooks import Hooks
from migrator.config.load import Loaded, load
from migrator.config.models import Endpoint, EndpointMode, Log, LogFormat, Settings
from migrator.config.secrets import mask, required_secret
from migrator.config.servers import Broker, Store, Tls
from migrator.config.telemetry import Telemetry
from migrator.config.throttle import Throttle
from migrator.config.web import Web

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
