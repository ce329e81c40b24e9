"""Private servers for tests, benchmarks and the demo: never the ones that already run here.

Import it, or run one in the foreground until SIGTERM or SIGINT; once clients are welcome it prints
one line of JSON with the addresses:

    python dev/servers.py rabbitmq --data-dir /tmp/node
    python dev/servers.py postgresql
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dev.postgres import PostgresServer
from dev.processes import ServerFailedError, ServerMissingError, free_port, wait_until
from dev.rabbit import Epmd, RabbitNode, TlsFiles

__all__ = [
    "Epmd",
    "PostgresServer",
    "RabbitNode",
    "ServerFailedError",
    "ServerMissingError",
    "TlsFiles",
    "free_port",
    "wait_until",
]


def _describe(server: RabbitNode | PostgresServer) -> dict[str, object]:
    facts: dict[str, object] = {"pid": server.pid, "data_dir": str(server.data_dir)}
    if isinstance(server, RabbitNode):
        return {"url": server.amqp_url(), "management_url": server.management_url, **facts}
    return {"url": server.url(), **facts}


def main() -> int:
    """Run one server until a signal ends it; return the exit code."""
    parser = argparse.ArgumentParser(description="Run one private server in the foreground.")
    parser.add_argument("kind", choices=["rabbitmq", "postgresql"])
    parser.add_argument(
        "--data-dir", type=Path, help="keep data here (default: temporary, removed)"
    )
    options = parser.parse_args()
    # Blocked from here on: a signal waits until sigwait takes it, also while the server starts.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        server: RabbitNode | PostgresServer = (
            RabbitNode(data_dir=options.data_dir)
            if options.kind == "rabbitmq"
            else PostgresServer(data_dir=options.data_dir)
        )
        server.start()
    except (ServerMissingError, ServerFailedError) as error:
        print(error, file=sys.stderr)
        return 4
    print(json.dumps(_describe(server)), flush=True)
    signal.sigwait(ends)
    server.stop()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
