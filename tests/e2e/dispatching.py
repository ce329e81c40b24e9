"""A rig whose program is the timeout manager of old endpoints: its settings, and its start."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev.processes import wait_until
from tests.e2e.rig import Rig


def prepare_dispatcher(
    rig: Rig, folder: Path, *, mode: str = "dispatch", **sections: Mapping[str, object]
) -> None:
    """Write the settings, create the legacy table and the ledger, and delays where they serve."""
    lines = ["[[endpoints]]", f"name = {json.dumps(rig.endpoint)}", f'mode = "{mode}"']
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    rig.config = folder / "migrator.toml"
    rig.config.write_text("\n".join([*lines, ""]))
    rig.create_store()
    rig.create_ledger()
    if mode != "dispatch":
        rig.create_levels()


def start_dispatcher(
    rig: Rig, *, fault: str | None = None, queue: str | None = None
) -> subprocess.Popen[str]:
    """Start the program and wait until it consumes; with a fault point it may be gone by then."""
    process = rig.start("run", "--endpoint", rig.endpoint, fault=fault)
    await_consumer(rig, process, queue)
    assert fault is not None or process.poll() is None, rig.finish(process).stderr[-6000:]
    return process


def await_consumer(rig: Rig, process: subprocess.Popen[str], queue: str | None = None) -> None:
    """Wait until somebody consumes *queue*, the endpoint's ``.Timeouts``, or *process* is gone."""
    with rig.amqp() as connection:
        channel = connection.channel()

        def consumes() -> bool:
            found = channel.queue_declare(queue or f"{rig.endpoint}.Timeouts", passive=True)
            return process.poll() is not None or found.method.consumer_count > 0

        wait_until(consumes, what="a consumer")


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
    return len(rig.query("SELECT * FROM written"))
