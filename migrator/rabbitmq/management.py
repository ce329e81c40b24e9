"""The broker's management API, as far as it answers what AMQP cannot; always optional.

Nothing here decides anything about a message: counts lag and unacknowledged ones come and go.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import quote, unquote, urlsplit

import httpx

from migrator.errors import AccessRefused, ConfigError, TargetError, TargetUnavailable
from migrator.rabbitmq.addresses import BrokerAddress
from migrator.rabbitmq.connection import EntityAbsent, TlsFiles, broker_tls_context, try_each
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    Kind,
    NodeState,
    PolicyRule,
    QueueMembers,
    QueueState,
)
from migrator.tls import unused_tls_context

_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 32 * 2**20
_PAGE: Final = 500
_MAX_PAGES: Final = 200
_QUEUE_COLUMNS: Final = (
    "name,type,arguments,policy,effective_policy_definition,messages,messages_ready,"
    "message_bytes_ready,messages_unacknowledged,messages_dlx,consumers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementSettings:
    """Where the API is."""

    url: str
    """``http(s)://host:port``, without credentials."""
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: TlsFiles = field(default_factory=TlsFiles)


def management_settings(
    address: BrokerAddress, url: str | None, tls: TlsFiles
) -> ManagementSettings:
    """Return where the API is; what *url* does not say comes from the broker's address.

    Raises:
        ConfigError: *url* is no http or https address; the password is not quoted.
    """
    if url is None:
        scheme, port = ("https", 15671) if address.use_tls else ("http", 15672)
        url = f"{scheme}://{_bracketed(address.host)}:{port}"
    try:
        parts = urlsplit(url)
        host, port_text = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError as exc:
        raise ConfigError("the management address has no valid host and port") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("the management address must be http://host:port or https://host:port")
    return ManagementSettings(
        url=f"{parts.scheme}://{_bracketed(host)}{port_text}{parts.path.rstrip('/')}",
        vhost=address.vhost,
        user=unquote(parts.username) if parts.username else address.user,
        password=unquote(parts.password) if parts.password else address.password,
        tls=tls,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class ManagementApi:
    """A client of the API, on the first node that answers; the last one used is asked first.

    Every method raises ``AccessRefused`` (user, password or tag), ``EntityAbsent`` (no such
    thing, or no API there) and ``TargetUnavailable`` (network, or no answer now).
    """

    def __init__(self, *nodes: ManagementSettings) -> None:
        self._vhost = quote(nodes[0].vhost, safe="")
        self._nodes = nodes
        self._last_used = 0
        is_secured = any(node.url.startswith("https") for node in nodes)
        self._client = httpx.Client(
            timeout=_TIMEOUT_S,
            verify=broker_tls_context(nodes[0].tls) if is_secured else unused_tls_context(),
            headers={"User-Agent": "migrator"},
            trust_env=False,  # a proxy from the environment would see the password
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def feature_flags(self) -> Mapping[str, str]:
        """Return the state of each feature flag by name (``enabled``, ``disabled`` …)."""
        found = self._get("feature-flags")
        return {str(flag["name"]): str(flag["state"]) for flag in _rows(found)}

    def nodes(self) -> Sequence[NodeState]:
        """Return every node with its alarms, and what it has left."""
        columns = "name,running,mem_alarm,disk_free_alarm,disk_free,disk_free_limit"
        return [
            NodeState(
                node=str(node["name"]),
                is_running=bool(node.get("running")),
                memory=bool(node.get("mem_alarm")),
                disk=bool(node.get("disk_free_alarm")),
                left_bytes=node["disk_free"] - node["disk_free_limit"]
                if isinstance(node.get("disk_free"), int)
                and isinstance(node.get("disk_free_limit"), int)
                else None,
            )
            for node in _rows(self._get("nodes", columns=columns))
        ]

    def policies(self) -> tuple[PolicyRule, ...]:
        """Return the policies of the virtual host, operator policies included."""
        return tuple(
            PolicyRule(
                name=str(row.get("name")),
                pattern=str(row.get("pattern")),
                apply_to=str(row.get("apply-to") or "all"),
                priority=int(row.get("priority") or 0),
                is_operator=path == "operator-policies",
                definition=_mapping(row.get("definition")),
            )
            for path in ("policies", "operator-policies")
            for row in _rows(self._get(f"{path}/{self._vhost}"))
        )

    def queue(self, name: str) -> QueueState | None:
        """Return one queue of the virtual host, or None when it does not exist."""
        try:
            found = self._get(
                f"queues/{self._vhost}/{quote(name, safe='')}", columns=_QUEUE_COLUMNS
            )
        except EntityAbsent:
            return None
        return _queue_state(_mapping(found))

    def queues(self, pattern: str) -> Iterator[QueueState]:
        """Yield the queues of the virtual host whose name matches the regular expression."""
        for row in self._pages(f"queues/{self._vhost}", pattern, _QUEUE_COLUMNS):
            yield _queue_state(row)

    def members(self, pattern: str) -> Iterator[QueueMembers]:
        """Yield where the quorum queues are kept whose name matches the regular expression.

        Their statistics would not do: a queue without a process reports none, so the last ones
        stay, with a leader and members that are gone.
        """
        columns = "name,vhost,type,leader,members,online"
        fresh = {"disable_stats": "true", "enable_queue_totals": "true"}
        for row in self._pages(f"queues/{self._vhost}", pattern, columns, **fresh):
            if row.get("type") == "quorum":
                yield QueueMembers(
                    queue=str(row.get("name")),
                    vhost=str(row.get("vhost")),
                    leader=str(row.get("leader") or ""),
                    members=_names(row.get("members")),
                    online=_names(row.get("online")),
                )

    def exchanges(self, pattern: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the exchanges whose name matches the regular expression, with their arguments."""
        rows = self._pages(f"exchanges/{self._vhost}", pattern, "name,arguments")
        return {str(row["name"]): _mapping(row["arguments"]) for row in rows}

    def exchange_kind(self, name: str) -> str | None:
        """Return the type of an exchange, or None when it does not exist."""
        try:
            found = self._get(f"exchanges/{self._vhost}/{quote(name, safe='')}", columns="type")
        except EntityAbsent:
            return None
        return str(_mapping(found).get("type") or "")

    def clients(self) -> tuple[str, ...]:
        """Return the names of the connections that migrator has to the virtual host."""
        path = f"vhosts/{self._vhost}/connections"
        found = _rows(self._get(path, columns="client_properties"))
        told = [_mapping(row.get("client_properties")) for row in found]
        return tuple(
            str(row.get("connection_name")) for row in told if row.get("product") == "migrator"
        )

    def bindings_at(self, entity: Entity) -> Sequence[Binding]:
        """Return all bindings from and to an entity, without those of the default exchange."""
        path = f"{entity.kind}s/{self._vhost}/{quote(entity.name, safe='')}/bindings"
        ends = ("",) if entity.kind is Kind.QUEUE else ("/source", "/destination")
        return [each for end in ends for each in self._bindings(path + end) if each.source]

    def bindings_from(self, exchange: str) -> Sequence[Binding]:
        """Return the bindings that start at an exchange; empty when it does not exist."""
        path = f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        return self._bindings(path, columns="source,destination,destination_type,routing_key")

    def _bindings(self, path: str, **query: str) -> Sequence[Binding]:
        with contextlib.suppress(EntityAbsent):
            return [_binding(row) for row in _rows(self._get(path, **query))]
        return []

    def _pages(
        self, path: str, pattern: str, columns: str, **more: str
    ) -> Iterator[Mapping[str, Any]]:
        for page in range(1, _MAX_PAGES + 1):
            found = _mapping(
                self._get(
                    path,
                    page=str(page),
                    page_size=str(_PAGE),
                    name=pattern,
                    use_regex="true",
                    columns=columns,
                    **more,
                )
            )
            yield from _rows(found.get("items"))
            if page >= int(found.get("page_count") or 0):
                return

    def _get(self, path: str, **query: str) -> Any:
        self._last_used, found = try_each(
            self._nodes, self._last_used, lambda node: self._ask(node, path, query), []
        )
        return found

    def _ask(self, node: ManagementSettings, path: str, query: Mapping[str, str]) -> Any:
        url = f"{node.url}/api/{path}"
        user = node.user, node.password
        try:
            with self._client.stream("GET", url, params=query, auth=user) as answer:
                _check(answer, node, path)
                return json.loads(_read(answer, node, path))
        except httpx.HTTPError as exc:
            raise TargetUnavailable(
                f"{node.url}: the management API cannot be reached: {exc}"
            ) from exc
        except ValueError as exc:
            raise TargetError(
                f"{url}: the answer is not JSON; is this the management API?"
            ) from exc


def _check(answer: httpx.Response, node: ManagementSettings, path: str) -> None:
    where = f"{node.url}: the management API"
    if answer.status_code in (401, 403):
        raise AccessRefused(
            f"{where} refused user {node.user!r} for {path} "
            "(wrong password, or the tag 'monitoring' is missing)"
        )
    if answer.status_code == 404:
        raise EntityAbsent(f"{where} has no {path}")
    if answer.status_code != 200:
        raise TargetUnavailable(f"{where} answered {answer.status_code} for {path}")


def _read(answer: httpx.Response, node: ManagementSettings, path: str) -> bytes:
    read = bytearray()
    for chunk in answer.iter_bytes():
        read += chunk
        if len(read) > _MAX_ANSWER_BYTES:
            raise TargetError(f"{node.url}: the answer for {path} is too large")
    return bytes(read)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _rows(found: Any) -> list[Mapping[str, Any]]:
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _names(found: Any) -> Sequence[str]:
    return [str(each) for each in found] if isinstance(found, list) else []


def _binding(row: Mapping[str, Any]) -> Binding:
    return Binding(
        source=str(row["source"]),
        target=Entity(kind=Kind(row["destination_type"]), name=str(row["destination"])),
        key=str(row["routing_key"]),
        arguments=_mapping(row.get("arguments")),
    )


def _queue_state(row: Mapping[str, Any]) -> QueueState:
    return QueueState(
        name=str(row.get("name")),
        kind=str(row.get("type") or "classic"),
        is_told="effective_policy_definition" in row,
        arguments=_mapping(row.get("arguments")),
        policy=row.get("policy") or None,
        effective_policy=_mapping(row.get("effective_policy_definition")),
        total=int(row.get("messages") or 0),
        ready=int(row.get("messages_ready") or 0),
        ready_bytes=int(row.get("message_bytes_ready") or 0),
        unacked=int(row.get("messages_unacknowledged") or 0),
        held_back=int(row.get("messages_dlx") or 0),
        consumers=int(row.get("consumers") or 0),
    )
