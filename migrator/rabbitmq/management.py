"""The broker's management API, as far as it answers what AMQP cannot; always optional.

Nothing here decides anything about a message: counts lag and unacknowledged ones come and go.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import quote, unquote, urlsplit

import httpx

from migrator.errors import AccessRefused, ConfigError, TargetError, TargetUnavailable
from migrator.rabbitmq.addresses import BrokerAddress
from migrator.rabbitmq.connection import EntityAbsent, TlsFiles, tls_context
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    Kind,
    NodeAlarms,
    PolicyRule,
    QueueState,
    Room,
)

_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 32 * 2**20
_PAGE: Final = 500
_MAX_PAGES: Final = 200
_QUEUE_COLUMNS: Final = (
    "name,type,arguments,policy,effective_policy_definition,messages,messages_ready,"
    "messages_unacknowledged,messages_dlx,consumers"
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
        raise ConfigError("the management address has no readable host and port") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("the management address has to be http://host:port or https://host:port")
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
        """Connect when first asked."""
        self._vhost = quote(nodes[0].vhost, safe="")
        self._nodes = tuple(map(_Node, nodes))
        self._last_used = 0

    def close(self) -> None:
        """Close the connections."""
        for node in self._nodes:
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def version(self) -> str:
        """Return the broker's version."""
        overview = _mapping(self._get("overview"))
        return str(overview.get("product_version") or overview.get("rabbitmq_version") or "")

    def feature_flags(self) -> Mapping[str, str]:
        """Return the state of each feature flag by name (``enabled``, ``disabled`` …)."""
        found = self._get("feature-flags")
        return {str(flag["name"]): str(flag["state"]) for flag in _rows(found)}

    def alarms(self) -> tuple[NodeAlarms, ...]:
        """Return every node with its alarms."""
        columns = "name,running,mem_alarm,disk_free_alarm"
        return tuple(
            NodeAlarms(
                node=str(node["name"]),
                is_running=bool(node.get("running")),
                memory=bool(node.get("mem_alarm")),
                disk=bool(node.get("disk_free_alarm")),
            )
            for node in _rows(self._get("nodes", columns=columns))
        )

    def room(self) -> tuple[Room, ...]:
        """Return what each running node has left for messages."""
        columns = "name,running,disk_free,disk_free_limit"
        return tuple(
            Room(
                disk_free_bytes=int(node["disk_free"]),
                disk_limit_bytes=int(node["disk_free_limit"]),
            )
            for node in _rows(self._get("nodes", columns=columns))
            if node.get("running") and isinstance(node.get("disk_free"), int)
        )

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

    def exchanges(self, pattern: str) -> Iterator[str]:
        """Yield the exchanges of the virtual host whose name matches the regular expression."""
        for row in self._pages(f"exchanges/{self._vhost}", pattern, "name"):
            yield str(row["name"])

    def alternates(self, pattern: str) -> frozenset[str]:
        """Return the exchanges, of those whose name matches, that name an alternate exchange."""
        rows = self._pages(f"exchanges/{self._vhost}", pattern, "name,arguments")
        return frozenset(
            str(row["name"]) for row in rows if "alternate-exchange" in _mapping(row["arguments"])
        )

    def clients(self) -> tuple[str, ...]:
        """Return the names of the connections that programs of ours have to the virtual host."""
        path = f"vhosts/{self._vhost}/connections"
        found = _rows(self._get(path, columns="client_properties"))
        told = [_mapping(row.get("client_properties")) for row in found]
        return tuple(
            str(row.get("connection_name")) for row in told if row.get("product") == "migrator"
        )

    def bindings_at(self, entity: Entity) -> tuple[Binding, ...]:
        """Return all bindings from and to an entity, without those of the default exchange."""
        path = f"{entity.kind}s/{self._vhost}/{quote(entity.name, safe='')}/bindings"
        ends = ("",) if entity.kind is Kind.QUEUE else ("/source", "/destination")
        found: list[Mapping[str, Any]] = []
        for end in ends:
            with contextlib.suppress(EntityAbsent):
                found += _rows(self._get(path + end))
        return tuple(_binding(row) for row in found if row["source"])

    def bindings_from(self, exchange: str) -> tuple[Binding, ...]:
        """Return the bindings that start at an exchange; empty when it does not exist."""
        path = f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        try:
            found = self._get(path, columns="source,destination,destination_type,routing_key")
        except EntityAbsent:
            return ()
        return tuple(_binding(row) for row in _rows(found))

    def _pages(self, path: str, pattern: str, columns: str) -> Iterator[Mapping[str, Any]]:
        for page in range(1, _MAX_PAGES + 1):
            found = _mapping(
                self._get(
                    path,
                    page=str(page),
                    page_size=str(_PAGE),
                    name=pattern,
                    use_regex="true",
                    columns=columns,
                )
            )
            yield from _rows(found.get("items"))
            if page >= int(found.get("page_count") or 0):
                return

    def _get(self, path: str, **query: str) -> Any:
        first, failures = self._last_used, list[TargetUnavailable]()
        for turn in range(len(self._nodes)):
            index = (first + turn) % len(self._nodes)
            try:
                found = self._nodes[index].get(path, query)
            except TargetUnavailable as exc:
                failures.append(exc)
                continue
            self._last_used = index
            return found
        if len(failures) == 1:
            raise failures[0]
        raise TargetUnavailable("; ".join(map(str, failures)))


class _Node:
    """The API of one node."""

    def __init__(self, settings: ManagementSettings) -> None:
        self._settings = settings
        self._client = httpx.Client(
            auth=(settings.user, settings.password),
            timeout=_TIMEOUT_S,
            verify=tls_context(settings.tls) if settings.url.startswith("https") else True,
            headers={"User-Agent": "migrator"},
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        url = f"{self._settings.url}/api/{path}"
        try:
            with self._client.stream("GET", url, params=query) as answer:
                self._check(answer, path)
                return json.loads(self._read(answer, path))
        except httpx.HTTPError as exc:
            raise TargetUnavailable(
                f"{self._settings.url}: the management API cannot be reached: {exc}"
            ) from exc
        except ValueError as exc:
            raise TargetError(f"{url}: the answer is not JSON; is it the management API?") from exc

    def _check(self, answer: httpx.Response, path: str) -> None:
        where = f"{self._settings.url}: the management API"
        if answer.status_code in (401, 403):
            raise AccessRefused(
                f"{where} refused user {self._settings.user!r} for {path} "
                "(wrong password, or the tag 'monitoring' is missing)"
            )
        if answer.status_code == 404:
            raise EntityAbsent(f"{where} has no {path}")
        if answer.status_code != 200:
            raise TargetUnavailable(f"{where} answered {answer.status_code} for {path}")

    def _read(self, answer: httpx.Response, path: str) -> bytes:
        read = bytearray()
        for chunk in answer.iter_bytes():
            read += chunk
            if len(read) > _MAX_ANSWER_BYTES:
                raise TargetError(f"{self._settings.url}: the answer for {path} is too large")
        return bytes(read)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _rows(found: Any) -> list[Mapping[str, Any]]:
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


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
        unacked=int(row.get("messages_unacknowledged") or 0),
        held_back=int(row.get("messages_dlx") or 0),
        consumers=int(row.get("consumers") or 0),
    )
