"""Settings: defaults < ``migrator.toml`` < ``MIGRATOR_*`` environment < command options.

``models`` says what can be set, ``sources`` where values come from, ``load`` puts the two
together and reports every problem at once, ``describe`` tells people the result. Settings stop
at ``wiring``: everything below gets plain values.
"""

from migrator.config.describe import Row, describe, show_text
from migrator.config.load import Loaded, load
from migrator.config.models import (
    Broker,
    Endpoint,
    EndpointMode,
    HandOver,
    Log,
    LogFormat,
    Settings,
    Store,
    Tls,
)
from migrator.config.secrets import mask, required_secret

__all__ = [
    "Broker",
    "Endpoint",
    "EndpointMode",
    "HandOver",
    "Loaded",
    "Log",
    "LogFormat",
    "Row",
    "Settings",
    "Store",
    "Tls",
    "describe",
    "load",
    "mask",
    "required_secret",
    "show_text",
]
