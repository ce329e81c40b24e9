"""One destination that is unusual: only its own rows wait, are shown with what to do, and go on."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from dev.processes import wait_until
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

PASSWORD: Final = "pw"
SOON: Final = timedelta(seconds=3)
RUN: Final = ("run", "--endpoint", "Sales")


def depth(rig: Rig, queue: str) -> int:
    """Return how many messages wait in *queue*."""
    with rig.amqp() as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def wait_for(rig: Rig, queue: str, count: int, *, seconds: float = 15) -> int:
    """Wait until *queue* has *count* messages, for some seconds at most; return how many it has."""
    deadline_s = time.monotonic() + seconds
    while (found := depth(rig, queue)) < count and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return found


def parked(rig: Rig) -> dict[str, str]:
    """Return why the rows of which destinations wait, as the ledger has it."""
    return dict(rig.query("SELECT destination, reason FROM migrator.held_destination"))


def details(rig: Rig) -> str:
    """Return what the ledger says of parked destinations."""
    found = rig.query("SELECT detail FROM migrator.held_destination ORDER BY destination")
    return "\n".join(str(detail) for (detail,) in found)


def rows_for(destination: str, count: int, due_in: timedelta = SOON) -> list[Row]:
    """Return rows for a destination."""
    return [row(due_in, destination=destination) for _ in range(count)]


def start(rig: Rig, *args: str, **env: str) -> Any:
    """Start the daemon for the rig's endpoint, to which rows due at once are its business."""
    return rig.start(*RUN, "--cutoff", "0s", *args, **env)


def logged(said: str, action: str) -> list[dict[str, Any]]:
    """Return what the log has of an action."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("action") == action]


def limited(rig: Rig, vhost: Vhost, write: str) -> tuple[str, Callable[[str], None]]:
    """Return the address of a user with a pattern for writing, and what sets another one."""
    user = f"limited-{secrets.token_hex(4)}"
    vhost.node.add_user(user, PASSWORD)

    def grant(pattern: str) -> None:
        vhost.node.set_permissions(
            vhost.name, user, configure=r"^migrator\.", write=pattern, read=r"^(migrator|nsb)\."
        )

    grant(write)
    parts = urlsplit(rig.broker_url)
    place = f"{user}:{PASSWORD}@{parts.hostname}:{parts.port}"
    return parts._replace(netloc=place).geturl(), grant


# ── no permission ─────────────────────────────────────────────────────────────────────────────────


def test_a_destination_we_may_not_bind_is_parked_alone(rig: Rig, vhost: Vhost) -> None:
    """Its rows wait, with the grant that is missing, and go on when it is given."""
    rig.prepare("Billing", "Shipping")
    url, grant = limited(rig, vhost, r"^(migrator\.|nsb\.|Billing$)")
    rig.insert([*rows_for("Shipping", 5), *rows_for("Billing", 20)])
    daemon = start(rig, MIGRATOR_BROKER__URL=url)
    assert wait_for(rig, "Billing", 20) == 20
    assert parked(rig) == {"Shipping": "no-permission"}
    assert "write" in details(rig)
    assert "Shipping$" in details(rig)
    assert "migrator db grants --broker" in details(rig)
    assert "no-permission" in rig.must("status")
    grant(".*")
    assert wait_for(rig, "Shipping", 5) == 5
    wait_until(lambda: parked(rig) == {}, what="nothing is parked")
    said = rig.stop(daemon)
    assert not logged(said, "lane_trouble")
    (first, *_) = logged(said, "destinations_parked")
    assert first["level"] == "error"
    assert "Shipping" in json.dumps(first)
    assert rig.quarantined() == {}
