"""The levels of a virtual host, declared in one request.

``create_delays`` asks for each of them first, which costs the broker and us half as much again;
that both make the same, ``test_delays`` shows.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from dev.api import ask
from migrator.delays.routing import DelaysVersion, infrastructure


def make_levels(management_url: str, vhost: str, version: DelaysVersion = DelaysVersion.V2) -> None:
    """Declare every exchange, queue and binding as ``guest``."""
    delays = infrastructure(version)
    kept = {"durable": True, "auto_delete": False}
    definitions = {
        "exchanges": [
            {"name": name, "type": "topic", "internal": False, "arguments": {}, **kept}
            for name in delays.exchanges
        ],
        "queues": [
            {"name": each.name, "arguments": dict(each.arguments), **kept} for each in delays.queues
        ],
        "bindings": [
            {
                "source": each.source,
                "destination": each.target.name,
                "destination_type": "queue" if each.target_is_queue else "exchange",
                "routing_key": each.key,
                "arguments": dict(each.arguments),
            }
            for each in delays.bindings
        ],
    }
    port = urlsplit(management_url).port or 0
    path = f"/api/definitions/{quote(vhost, safe='')}"
    ask(port, "POST", path, definitions, login="guest:guest")
