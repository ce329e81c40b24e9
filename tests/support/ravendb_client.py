"""A RavenDB database as an endpoint and its timeout manager use it, without migrator's code.

Documents are stored, read and removed by documented requests, so that the same lines work on the
strict server and on a real one. Source: reference ``legacy-stores.md`` 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import httpx

COLLECTION: Final = "TimeoutDatas"
NO_SAGA: Final = "00000000-0000-0000-0000-000000000000"
_TYPE: Final = "NServiceBus.TimeoutPersisters.RavenDB.TimeoutData, NServiceBus.RavenDB"
_SERVERS: Final = {"@id", "@etag", "@change-vector", "@last-modified", "Last-Modified"}
"""Metadata that the server writes anew with each change."""
_PAGE: Final = 1024


class LegacyDatabase:
    """One database; ``family`` is ``3.5`` or ``4``."""

    def __init__(self, url: str, database: str, *, family: str) -> None:
        self.url = url
        self.database = database
        self.family = family
        self._http = httpx.Client(base_url=f"{url}/databases/{database}", timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    # ── the persistence ─────────────────────────────────────────────────────────────────────

    def add(self, timeouts: Mapping[str, Mapping[str, Any]]) -> None:
        """Store documents by id, as NServiceBus does."""
        where = "Raven-Entity-Name" if self.family == "3.5" else "@collection"
        metadata = {where: COLLECTION, "Raven-Clr-Type": _TYPE}
        self._batch(self._put(id_, content, metadata) for id_, content in timeouts.items())

    def peek(self, id_: str) -> bool:
        """Return whether a timeout is there."""
        return id_ in self._all(id_)

    def try_remove(self, id_: str) -> bool:
        """Remove a timeout as a timeout manager does that is about to send it."""
        found = self._all(id_).get(id_)
        return found is not None and self._removed(id_, found)

    def remove_by_saga(self, saga: str) -> list[str]:
        """Remove all timeouts of a saga, whoever owns them; return their ids."""
        found = {id_: each for id_, each in self._all().items() if each.get("SagaId") == saga}
        return [id_ for id_, each in found.items() if self._removed(id_, each)]

    # ── looking, and odd documents ──────────────────────────────────────────────────────────

    def contents(self, prefix: str = "") -> dict[str, dict[str, Any]]:
        """Return every document by id, with its metadata but for what the server writes itself."""
        return {id_: _without_servers(each) for id_, each in self._all(prefix).items()}

    def remove(self, ids: Iterable[str]) -> None:
        """Remove documents, whatever they are."""
        self._batch(self._delete(id_, None) for id_ in ids)

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def _all(self, prefix: str = "") -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for start in [prefix] if prefix else _FIRST_LETTERS:
            answer = self._http.get(
                "/docs", params={"startsWith": start, "start": 0, "pageSize": _PAGE}
            )
            answer.raise_for_status()
            told = answer.json()
            page = told if self.family == "3.5" else told["Results"]
            assert len(page) < _PAGE, "more than a test should have"
            found |= {each["@metadata"]["@id"]: each for each in page}
        return found

    def _removed(self, id_: str, found: Mapping[str, Any]) -> bool:
        version = found["@metadata"]["@etag" if self.family == "3.5" else "@change-vector"]
        if self.family == "4":
            return self._batch([self._delete(id_, version)])
        # a DELETE under an ETag would succeed although the document is gone
        return self._batch([self._put(id_, {}, {}, version), self._delete(id_, None)])

    def _put(
        self,
        id_: str,
        content: Mapping[str, Any],
        metadata: Mapping[str, Any],
        version: str | None = None,
    ) -> dict[str, Any]:
        if self.family == "3.5":
            given = {"Key": id_, "Method": "PUT", "Document": content, "Metadata": metadata}
            return given if version is None else {**given, "Etag": version}
        document = {**content, "@metadata": metadata}
        return {"Id": id_, "Type": "PUT", "ChangeVector": version, "Document": document}

    def _delete(self, id_: str, version: str | None) -> dict[str, Any]:
        if self.family == "3.5":
            return {"Key": id_, "Method": "DELETE", **({"Etag": version} if version else {})}
        return {"Id": id_, "Type": "DELETE", "ChangeVector": version}

    def _batch(self, commands: Iterable[dict[str, Any]]) -> bool:
        """Do all *commands* or none; return False when a version is another one."""
        some = list(commands)
        body: Any = some if self.family == "3.5" else {"Commands": some}
        answer = self._http.post("/bulk_docs", json=body)
        if answer.status_code == httpx.codes.CONFLICT:
            return False
        answer.raise_for_status()
        return True


_FIRST_LETTERS: Final = ("0", "T", "m", "b")
"""How ids begin of timeouts, of our receipts and of the vendor's batches: none may be asked for
without a prefix."""


def _without_servers(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document["@metadata"]
    kept = {key: metadata[key] for key in sorted(metadata) if key not in _SERVERS}
    content = {key: value for key, value in document.items() if key != "@metadata"}
    return {**content, "@metadata": kept}
