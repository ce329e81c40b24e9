"""A private RabbitMQ node: own ports, own data, own epmd, loopback only."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

from dev import erlang
from dev.api import ask
from dev.erlang import Epmd, accepts
from dev.network import Host
from dev.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailedError,
    ServerMissingError,
    free_port,
)
from dev.rooted import from_root, other_root

_BINARIES = Path(
    "/usr/lib/rabbitmq/bin"
)  # Debian's; the ones on PATH there insist on their own user
MEMORY_LIMIT = 2**32
"""Bytes; at 2**30 the alarm stopped all publishers for 3 s of a run with 100 000 timeouts."""
_AMQP_HELLO = b"AMQP\x00\x00\x09\x01"
_ERLANG_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
_SMALL = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Two schedulers that sleep when there is nothing to do: several nodes share a small machine."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate files in PEM form, for a TLS listener."""

    ca: Path
    cert: Path
    key: Path


def rabbitmq(program: str, *args: str, root: Path | None = None) -> list[str]:
    """Return the command that runs ``program`` of RabbitMQ, or raise ``ServerMissingError``.

    Args:
        program: Its name.
        args: What it is given.
        root: The root of another installation (see dev/unpack); None: the machine's.
    """
    if root:
        return from_root(root, [str(_BINARIES / program), *args])
    if (_BINARIES / program).exists():
        return [str(_BINARIES / program), *args]
    found = shutil.which(program)
    if found is None:
        raise ServerMissingError(f"RabbitMQ is not installed here ({program} was not found)")
    return [found, *args]


class RabbitNode(PrivateServer):
    """One RabbitMQ node with the management plugin; ``guest``/``guest`` is its administrator.

    ``kill`` and ``start`` again keep data and ports. ``tls`` adds a TLS listener that accepts
    client certificates of the same authority and, with ``verify_clients``, demands them. ``root``,
    or the variable RABBITMQ_ROOT, names another installation than the machine's (dev/unpack).
    """

    host = LOOPBACK
    """Where it listens, and clients reach it."""
    _on: Host | None = None
    """The host in a network of our own that it runs on; None: this machine."""

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        tls: TlsFiles | None = None,
        verify_clients: bool = False,
        epmd: Epmd | None = None,
        cookie: str | None = None,
        extra_config: str = "",
        root: Path | None = None,
    ) -> None:
        self._root = root or other_root("RABBITMQ_ROOT")
        rabbitmq("rabbitmq-server", root=self._root)  # or it is missing
        super().__init__("rabbit", data_dir, name="RabbitMQ")
        self.name = self._remembered("node_name", self._new_name())
        self.amqp_port = free_port()
        self.management_port = free_port()
        self.amqps_port = free_port() if tls else 0
        self._dist_port = free_port()
        self._own_epmd = epmd is None
        self.epmd = epmd or Epmd(self._on)
        self._tls = tls
        self._verify_clients = verify_clients
        self._extra_config = extra_config
        self._remembered(".erlang.cookie", cookie or secrets.token_hex(16))
        self._write_files()

    # --- life -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        self._launch()
        self._process.wait_ready(self._ready)
        return self

    def kill(self) -> None:
        """``kill -9``: nothing is flushed, no connection is closed in good order.

        A quorum queue declared less than about two seconds ago does not survive it: the broker
        writes the names of its queues' logs to disk only after a moment (measured, 3.10). Whoever
        does not want to wait for that calls ``write_names`` before.
        """
        super().kill()

    def write_names(self) -> None:
        """Have the names of the logs of all quorum queues written now, as the broker does soon."""
        self.evaluate("[dets:sync(T) || T <- dets:all()].")

    def close(self) -> None:
        """End the node at once, and remove its data unless the caller named the folder."""
        super().close()
        if self._own_epmd:
            self.epmd.close()

    # --- addresses --------------------------------------------------------------------------

    def amqp_url(self, vhost: str = "/", *, user: str = "guest", password: str = "guest") -> str:
        """Return the plain AMQP address of a virtual host."""
        return f"amqp://{user}:{password}@{self.host}:{self.amqp_port}/{quote(vhost, safe='')}"

    def amqps_url(self, vhost: str = "/", *, user: str = "guest", password: str = "guest") -> str:
        """Return the TLS address of a virtual host; the node must have been given ``tls``."""
        if not self.amqps_port:
            raise ServerFailedError("this node has no TLS listener: pass tls=TlsFiles(...)")
        return f"amqps://{user}:{password}@localhost:{self.amqps_port}/{quote(vhost, safe='')}"

    @property
    def management_url(self) -> str:
        """The address of the management API, with credentials."""
        return f"http://guest:guest@{self.host}:{self.management_port}"

    # --- administration ---------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The version that runs."""
        return str(self.api("GET", "overview")["rabbitmq_version"])

    @property
    def release(self) -> tuple[int, ...]:
        """The same as numbers: ``(3, 10, 8)``."""
        return tuple(int(part) for part in self.version.split("."))

    def api(self, method: str, path: str, body: object = None) -> Any:
        """Call the management API, ``path`` below ``/api/``; return the decoded answer."""
        port, path = self.management_port, f"/api/{path}"
        return ask(port, method, path, body, login="guest:guest", host=self.host)

    def create_vhost(self, name: str) -> None:
        """Create a virtual host, open to ``guest``."""
        self.api("PUT", f"vhosts/{quote(name, safe='')}")
        self.set_permissions(name, "guest")

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all its queues; connections to it are closed."""
        self.api("DELETE", f"vhosts/{quote(name, safe='')}")

    def add_user(self, name: str, password: str, *, tags: str = "") -> None:
        """Create a user, or change its password and tags; it may enter no virtual host yet."""
        self.api("PUT", f"users/{quote(name, safe='')}", {"password": password, "tags": tags})

    def set_permissions(
        self, vhost: str, user: str, *, configure: str = ".*", write: str = ".*", read: str = ".*"
    ) -> None:
        """Let a user into a virtual host, within three patterns."""
        path = f"permissions/{quote(vhost, safe='')}/{quote(user, safe='')}"
        self.api("PUT", path, {"configure": configure, "write": write, "read": read})

    def set_policy(self, vhost: str, name: str, *, pattern: str, **definition: object) -> None:
        """Set a policy; ``max_length=3`` becomes ``max-length``."""
        rules = {key.replace("_", "-"): value for key, value in definition.items()}
        body = {"pattern": pattern, "definition": rules}
        self.api("PUT", f"policies/{quote(vhost, safe='')}/{quote(name, safe='')}", body)

    def set_memory_limit(self, size: int = MEMORY_LIMIT) -> None:
        """Let the node use *size* bytes before it raises its alarm; 0: it does so at once.

        Raises:
            ServerFailedError: Others use the node.
        """
        if self.shared:
            raise ServerFailedError("an alarm stops all publishers: take a private node for it")
        limit = f"{{absolute, {size}}}" if size else "0.0"
        self.evaluate(f"vm_memory_monitor:set_vm_memory_high_watermark({limit}).")

    def evaluate(self, expression: str) -> str:
        """Evaluate Erlang in this node, up to its full stop; return the value as it is printed."""
        if not erlang.can_evaluate():
            return self.ctl("eval", expression).strip()
        cookie = self._remembered(".erlang.cookie", "")
        return erlang.evaluate(
            expression,
            node=self.name,
            cookie=cookie,
            environment=self._environment(),
            host=self._on,
        )

    def lose_sight_of_consumers(self, url: str, queue: str) -> None:
        """Have a quorum queue do what it does when a short split hides its consumers' nodes.

        Its log is told that their channels cannot be seen, and then that their node is back: it
        takes back what they hold, and delivers all of it again on the same channels. Since 4.3 it
        waits 60 s for them first; it is told that these are over.
        """
        vhost = unquote(urlsplit(url).path[1:])
        self.evaluate(
            f"""
            {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)),
            Leader = amqqueue:get_pid(Q),
            Seen = fun rabbit_fifo:query_consumers/1,
            {{ok, {{_, Consumers}}, _}} = ra:local_query(Leader, Seen),
            Down = fun() ->
                [ra:process_command(Leader, {{down, element(1, Consumer), noconnection}})
                    || Consumer <- maps:values(Consumers)]
            end,
            Down(),
            case application:get_env(rabbit, consumer_disconnected_timeout) of
                undefined -> ok;
                _ -> timer:sleep(200), Down(), % at the first one it learns that the node is up
                    [ra:process_command(Leader, {{timeout, {{consumer_disconnected_timeout, Key}}}})
                        || Key <- maps:keys(Consumers)]
            end,
            ra:process_command(Leader, {{nodeup, node()}}).
            """
        )

    def delete_user(self, name: str) -> None:
        """Delete a user; its connections end."""
        self.api("DELETE", f"users/{quote(name, safe='')}")

    def delete_policy(self, vhost: str, name: str) -> None:
        """Delete a policy."""
        self.api("DELETE", f"policies/{quote(vhost, safe='')}/{quote(name, safe='')}")

    def ctl(self, *args: str) -> str:
        """Run ``rabbitmqctl`` on this node (one to two seconds); return what it printed."""
        done = subprocess.run(
            self._there(
                rabbitmq("rabbitmqctl", "--silent", "--node", self.name, *args, root=self._root)
            ),
            env=self._environment(),
            cwd=self.data_dir,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerFailedError(f"rabbitmqctl {' '.join(args)}: {done.stderr or done.stdout}")
        return done.stdout

    # --- how it is set up -------------------------------------------------------------------

    def _launch(self) -> None:
        self.epmd.start()
        command = self._there(rabbitmq("rabbitmq-server", root=self._root))
        self._process.start(command, env=self._environment(), cwd=self.data_dir)

    def _there(self, command: list[str]) -> list[str]:
        return command if self._on is None else self._on.namespace.enter(command)

    def _new_name(self) -> str:
        return f"migrator-{secrets.token_hex(4)}@localhost"

    def _remembered(self, file: str, value: str) -> str:
        """Return what the data folder says; where it is new, ``value`` from now on."""
        path = self.data_dir / file
        if not path.exists():
            path.write_text(value)
            path.chmod(0o400)
        return path.read_text()

    def _write_files(self) -> None:
        (self.data_dir / "enabled_plugins").write_text("[rabbitmq_management].\n")
        (self.data_dir / "rabbitmq.conf").write_text("\n".join(self._config()) + "\n")

    def _config(self) -> list[str]:
        lines = [
            f"listeners.tcp.local = {self.host}:{self.amqp_port}",
            f"management.tcp.ip = {self.host}",
            f"management.tcp.port = {self.management_port}",
            "disk_free_limit.absolute = 50MB",
            f"vm_memory_high_watermark.absolute = {MEMORY_LIMIT}",
            "log.console = false",
            "log.file.level = info",
        ]
        if self._tls:
            lines += [
                f"listeners.ssl.local = {self.host}:{self.amqps_port}",
                f"ssl_options.cacertfile = {self._tls.ca}",
                f"ssl_options.certfile = {self._tls.cert}",
                f"ssl_options.keyfile = {self._tls.key}",
                "ssl_options.verify = verify_peer",
                f"ssl_options.fail_if_no_peer_cert = {str(self._verify_clients).lower()}",
            ]
        return [*lines, *self._extra_config.splitlines()]

    def _environment(self) -> dict[str, str]:
        inherited = {
            key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TZ") if key in os.environ
        }
        data = self.data_dir
        return {
            **inherited,
            "HOME": str(data),  # where Erlang looks for its cookie
            "ERL_EPMD_PORT": str(self.epmd.port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_CRASH_DUMP": str(data / "erl_crash.dump"),
            "RUNNING_UNDER_SYSTEMD": "true",  # the start script then becomes the node: one pid
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.amqp_port),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONF_ENV_FILE": str(data / "rabbitmq-env.conf"),  # absent: not the machine's
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(data / "advanced.config"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(data / "generated"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_PID_FILE": str(data / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{_ERLANG_LOOPBACK} {_SMALL}",
            "RABBITMQ_CTL_ERL_ARGS": f"{_ERLANG_LOOPBACK} {_SMALL}",
        }

    def _ready(self) -> bool:
        return (
            _speaks_amqp(self.host, self.amqp_port)
            and accepts(self.management_port, self.host)
            and self._api_answers()
        )

    def _api_answers(self) -> bool:
        try:
            self.api("GET", "overview")
        except (ServerFailedError, OSError, http.client.HTTPException):
            return False
        return True


def _speaks_amqp(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(_AMQP_HELLO)
            return connection.recv(1) == b"\x01"  # a method frame: connection.start
    except OSError:
        return False
