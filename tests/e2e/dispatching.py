"""A rig whose program is the timeout manager of old endpoints: its settings, and its start."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from dev.processes import PATIENCE_S
from tests.e2e.rig import Rig

Values = Mapping[str, object]


def settings_text(
    *endpoints: str,
    mode: str = "dispatch",
    dispatch: Values | None = None,
    handover: Values | None = None,
) -> str:
    """Return a configuration file for *endpoints*, all in one mode."""
    lines: list[str] = []
    for name in endpoints:
        lines += ["[[endpoints]]", f"name = {json.dumps(name)}", f"mode = {json.dumps(mode)}"]
    for section, values in (("dispatch", dispatch), ("handover", handover)):
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in (values or {}).items()]
    return "\n".join([*lines, ""])


def prepare_dispatcher(rig: Rig, folder: Path, *, mode: str = "dispatch", **sections: Any) -> None:
    """Write the settings, create the legacy table and the ledger, and delays where they serve."""
    rig.config = folder / "migrator.toml"
    rig.config.write_text(settings_text(rig.endpoint, mode=mode, **sections))
    rig.create_store()
    rig.create_ledger()
    if mode != "dispatch":
        rig.create_levels()


def start_dispatcher(
    rig: Rig, *, fault: str | None = None, queue: str | None = None
) -> subprocess.Popen[str]:
    """Start the program and wait until it consumes; with a fault point it may be gone by then."""
    process = rig.start("run", "--endpoint", rig.endpoint, fault=fault)
    deadline = time.monotonic() + PATIENCE_S
    with rig.amqp() as connection:
        channel = connection.channel()
        while process.poll() is None and not consumers(
            channel, queue or f"{rig.endpoint}.Timeouts"
        ):
            if time.monotonic() > deadline:
                process.kill()
                break
            connection.sleep(0.05)
    assert fault is not None or process.poll() is None, rig.finish(process).stderr[-6000:]
    return process


def consumers(channel: BlockingChannel, queue: str) -> int:
    """Return how many consume *queue*."""
    return int(channel.queue_declare(queue, passive=True).method.consumer_count)


def waiting(rig: Rig, queue: str) -> int:
    """Return how many messages wait in *queue* and are in nobody's hand."""
    with rig.amqp() as connection:
        found = connection.channel().queue_declare(queue, passive=True).method
        return int(found.message_count)


def watch_table(rig: Rig) -> None:
    """Make the database note every row that is ever written into the legacy table."""
    with rig.sql() as connection:
        connection.execute("CREATE TABLE written (n int)")
        connection.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO written VALUES (1); RETURN NULL; END $$"
        )
        connection.execute(
            'CREATE TRIGGER noted AFTER INSERT ON "Sales_TimeoutData" '
            "FOR EACH ROW EXECUTE FUNCTION note()"
        )


def written(rig: Rig) -> int:
    """Return how many rows were."""
    with rig.sql() as connection:
        return len(connection.execute("SELECT * FROM written").fetchall())
