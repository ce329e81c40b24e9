"""Settings: defaults < ``migrator.toml`` < ``MIGRATOR_*`` environment < command options.

``settings`` has the sections, from ``servers`` and ``work``, with the types of ``values``.
``sources`` merges the sources. ``loading`` reports every problem at once, and lists the settings in
force. Start with ``load``. No capability or platform imports settings: they get plain values.

Imports are lazy: the models take longer to import than a verb that only asks a daemon.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrator.config.loading import ConfigDocument, Loaded, describe, load, show_text
    from migrator.config.secrets import mask, required_secret
    from migrator.config.settings import Hooks, Settings
    from migrator.config.work import Endpoint, EndpointMode, HandOver, NearDue, ThrottleSettings

__all__ = [
    "ConfigDocument",
    "Endpoint",
    "EndpointMode",
    "HandOver",
    "Hooks",
    "Loaded",
    "NearDue",
    "Settings",
    "ThrottleSettings",
    "describe",
    "load",
    "mask",
    "required_secret",
    "show_text",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("secrets", "work", "settings", "loading"):
            found = import_module(f"migrator.config.{module}")
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
