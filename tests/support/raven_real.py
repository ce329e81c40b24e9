"""A database of a real RavenDB 4 behind the boundary where tests make requests fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from dev.processes import ServerFailedError
from dev.servers import RavenServer
from tests.support.http_proxy import Answer, Request, passed_on
from tests.support.raven_boundary import DATABASE, Boundary, Stored

_SERVERS_OWN = {"@id", "@change-vector", "@last-modified"}
_MOST_DOCUMENTS = 100_000


class RealRaven(Boundary):
    """A database of *server*; requests and answers pass as they are, but for its name."""

    def __init__(self, server: RavenServer, database: str) -> None:
        """Connect when first asked."""
        super().__init__("4")
        self._raven = server
        self._database = database
        self._late: list[dict[str, Any]] | None = None

    @property
    def address(self) -> tuple[str, str]:
        """See ``Boundary``: RavenDB itself, with nothing before it."""
        return self._raven.url(), self._database

    # ── for tests, and for the simulated timeout manager ────────────────────────────────────

    @property
    def documents(self) -> dict[str, Stored]:
        """See ``Boundary``."""
        told = self._ask("GET", f"docs?start=0&pageSize={_MOST_DOCUMENTS}")
        return {each["@metadata"]["@id"].lower(): _stored(each) for each in told["Results"]}

    def ids(self, prefix: str = "") -> list[str]:
        """See ``Boundary``; without the documents themselves."""
        where = f"startsWith={quote(prefix)}&" if prefix else ""
        path = f"docs?{where}start=0&pageSize={_MOST_DOCUMENTS}&metadataOnly=true"
        found = [each["@metadata"]["@id"] for each in self._ask("GET", path)["Results"]]
        return sorted(found, key=str.lower)

    def store(self, id_: str, content: Mapping[str, Any], **metadata: Any) -> None:
        """See ``Boundary``."""
        document = {**content, "@metadata": metadata}
        self._do({"Id": id_, "ChangeVector": None, "Document": document, "Type": "PUT"})

    def remove(self, id_: str) -> None:
        """See ``Boundary``."""
        self._do({"Id": id_, "ChangeVector": None, "Type": "DELETE"})

    def try_remove(self, id_: str) -> bool:
        """See ``Boundary``: in the version that was read, so that only one can do it."""
        found = self._ask("GET", f"docs?id={quote(id_)}&id=nobody")["Results"][0]
        if found is None:
            return False
        version = found["@metadata"]["@change-vector"]
        command = {"Id": id_, "ChangeVector": version, "Type": "DELETE"}
        try:
            self._ask("POST", "bulk_docs", {"Commands": [command]})
        except ServerFailedError as failed:
            if "Concurrency" not in str(failed):
                raise
            return False
        return True

    def empty(self) -> None:
        """Remove all documents: sooner done than making another database."""
        with self.at_once():
            for each in self.documents.values():
                self.remove(each.id)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """See ``Boundary``."""
        commands: list[dict[str, Any]] = []
        self._late = commands
        try:
            yield
        finally:
            self._late = None
        self._ask("POST", "bulk_docs", {"Commands": commands})

    def _do(self, command: dict[str, Any]) -> None:
        if self._late is None:
            self._ask("POST", "bulk_docs", {"Commands": [command]})
        else:
            self._late.append(command)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        return self._raven.api(method, f"databases/{self._database}/{path}", body)

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def do(self, request: Request) -> Answer:
        """Return what RavenDB answers; that it takes offence is a violation."""
        target = request.target.replace(
            f"/databases/{DATABASE}/", f"/databases/{self._database}/", 1
        )
        target = target.replace(f"?name={DATABASE}&", f"?name={self._database}&", 1)
        told = passed_on(request, self._raven.port, target)
        if told.status not in _EXPECTED and target != request.target:
            self.violations.append(f"{request.line}: {told.status} {told.body[:2000]!r}")
        return told


_EXPECTED = {200, 201, 409}


def _stored(told: dict[str, Any]) -> Stored:
    metadata = told.pop("@metadata")
    return Stored(
        id=metadata["@id"],
        content=told,
        metadata={key: metadata[key] for key in metadata if key not in _SERVERS_OWN},
        version=metadata["@change-vector"],
    )
