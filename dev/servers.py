"""Private servers for tests, benchmarks and the demo: never the ones that already run here.

Import it, or run one in the foreground until SIGTERM or SIGINT; once clients are welcome it prints
one line of JSON with the addresses:

    python dev/servers.py rabbitmq --data-dir /tmp/node
    python dev/servers.py rabbitmq --suite sid --nodes 3
    python dev/servers.py postgresql
    python dev/servers.py mariadb
    python dev/servers.py mysql
    python dev/servers.py azurite
    python dev/servers.py ravendb
    python dev/servers.py all --share /tmp/servers

The last runs one of each kind but MySQL that is installed, for all processes that ``shared`` tells
of them: tests find them by the variable TEST_SERVERS with that path. ``--suite`` takes RabbitMQ
from another Debian release, which dev/unpack unpacks when it is asked for first; three nodes are
one cluster (dev/cluster.py).
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dev.azurite import AzuriteServer
from dev.cluster import Cluster
from dev.erlang import Epmd
from dev.mariadb import MariadbServer
from dev.mysql import MysqlServer
from dev.postgres import PostgresServer
from dev.processes import ServerFailedError, ServerMissingError, free_port, wait_until
from dev.rabbit import RabbitNode, TlsFiles
from dev.ravendb import RavenServer, ServerCertificate

__all__ = [
    "AzuriteServer",
    "Epmd",
    "MariadbServer",
    "MysqlServer",
    "PostgresServer",
    "RabbitNode",
    "RavenServer",
    "ServerCertificate",
    "ServerFailedError",
    "ServerMissingError",
    "TlsFiles",
    "free_port",
    "wait_until",
]

Server = RabbitNode | PostgresServer | MariadbServer | AzuriteServer | RavenServer
_KINDS: Final[dict[str, type[Server]]] = {
    "rabbitmq": RabbitNode,
    "postgresql": PostgresServer,
    "mariadb": MariadbServer,
    "mysql": MysqlServer,
    "azurite": AzuriteServer,
    "ravendb": RavenServer,
}


def _describe(server: Server) -> dict[str, object]:
    facts: dict[str, object] = {"pid": server.pid, "data_dir": str(server.data_dir)}
    if isinstance(server, RabbitNode):
        urls = {"url": server.amqp_url(), "management_url": server.management_url}
        return {"version": server.version, **urls, **facts}
    return {"url": server.url(), **facts}


def shared(kind: str) -> Server | None:
    """Return the running server of a kind that TEST_SERVERS tells of, if there is one."""
    path = os.environ.get("TEST_SERVERS")
    if not path:
        return None
    running: dict[str, Server] = pickle.loads(Path(path).read_bytes())  # noqa: S301 - ours
    return running.get(kind)


def _serve_all(share: Path) -> None:
    """Run one server of each kind, and write down how they are reached; end by a signal."""
    with ExitStack() as stack:

        def serve(kind: str) -> Server | None:
            try:
                server = _KINDS[kind]()
            except ServerMissingError as missing:
                print(missing, file=sys.stderr)
                return None
            stack.enter_context(server)
            return server

        kinds = [kind for kind in _KINDS if kind != "mysql"]
        with ThreadPoolExecutor() as pool:
            served = zip(kinds, pool.map(serve, kinds), strict=True)
            running = {kind: server for kind, server in served if server}
        draft = share.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(running))
        draft.rename(share)
        signal.pause()


def _until_signalled(server: Server) -> None:
    try:
        while server.running:
            time.sleep(0.2)
        raise ServerFailedError("the server has ended by itself")
    finally:
        server.stop()


def _serve_cluster(size: int) -> None:
    """Run a cluster of RabbitMQ; end by a signal."""
    with Cluster(size=size) as cluster:
        told = {
            "version": cluster.nodes[0].version,
            "urls": cluster.amqp_urls(),
            "management_urls": [node.management_url for node in cluster.nodes],
            "pids": [node.pid for node in cluster.nodes],
        }
        print(json.dumps(told), flush=True)
        signal.pause()


def _use_suite(suite: str) -> None:
    """Have RabbitMQ started from another Debian release, unpacked unless it is there.

    Raises:
        ServerMissingError: It cannot be unpacked here.
    """
    top = Path(__file__).resolve().parent.parent
    root = top / ".roots" / suite
    if not [*root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")]:
        done = subprocess.run([top / "dev/unpack", suite, "rabbitmq-server"], check=False)
        if done.returncode:
            raise ServerMissingError(f"RabbitMQ of Debian's {suite} cannot be unpacked here")
    os.environ["RABBITMQ_ROOT"] = str(root)


def main() -> int:
    """Run one server until a signal ends it; return the exit code."""
    parser = argparse.ArgumentParser(description="Run private servers in the foreground.")
    parser.add_argument("kind", choices=[*_KINDS, "all"])
    parser.add_argument("--share", type=Path, help="with all: tell in this file where they are")
    parser.add_argument(
        "--data-dir", type=Path, help="keep data here (default: temporary, removed)"
    )
    parser.add_argument("--suite", choices=["trixie", "sid"], help="RabbitMQ 4.0, or 4.3")
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=1, help="of RabbitMQ")
    options = parser.parse_args()
    if options.kind != "rabbitmq" and (options.suite or options.nodes > 1):
        parser.error("--suite and --nodes are for rabbitmq only")
    if options.nodes > 1 and options.data_dir:
        parser.error("the nodes of a cluster keep no data: --data-dir is for a single one")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like SIGINT: KeyboardInterrupt
    try:
        if options.suite:
            _use_suite(options.suite)
        if options.nodes > 1:
            with suppress(KeyboardInterrupt):
                _serve_cluster(options.nodes)
            return 0
        if options.kind == "all":
            with suppress(KeyboardInterrupt):
                _serve_all(options.share)
            return 0
        make = _KINDS[options.kind]
        with make(data_dir=options.data_dir) as server, suppress(KeyboardInterrupt):
            print(json.dumps(_describe(server)), flush=True)
            _until_signalled(server)
    except (ServerMissingError, ServerFailedError) as error:
        print(error, file=sys.stderr)
        return 4
    except KeyboardInterrupt:  # while it was starting
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
