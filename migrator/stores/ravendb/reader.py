"""Reads documents: pages of a prefix, and documents by id, never more at once than is bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from migrator.database.failures import retrying
from migrator.errors import StoreError
from migrator.stores.ravendb.families import BadAnswer, Family, RawDocument, Request
from migrator.stores.ravendb.http import (
    ANSWER_BYTES,
    ONE_DOCUMENT_BYTES,
    AnswerTooLarge,
    RavenHttp,
)

PAGE_DOCUMENTS: Final = 1024
"""A 3.5 server gives no more, whatever is asked for."""


class RavenReader:
    """Reads of one database; each is tried again a little later while there is no answer."""

    def __init__(self, http: RavenHttp, family: Family) -> None:
        """Read with *http*, in the form of *family*."""
        self._http = http
        self._family = family

    def pages(self, prefix: str) -> Iterator[Sequence[RawDocument]]:
        """Yield all documents whose id starts with *prefix*, in pages, each behind the last id.

        A page begins behind an id, not at a count: what is removed meanwhile makes it skip
        nothing. It is smaller where documents are large.

        Raises:
            StoreUnavailable: No answer.
            StoreError: One document alone is too large; the server does not page.
        """
        after: str | None = None
        size = PAGE_DOCUMENTS // 4
        while True:
            try:
                page = self._page(prefix, after, size)
            except AnswerTooLarge:
                if size == 1:
                    raise StoreError(
                        f"{self._http.where}: the document behind {after or prefix!r} has more "
                        f"than {ONE_DOCUMENT_BYTES} bytes"
                    ) from None
                size = max(size // 4, 1)
                continue
            if not page:
                return
            if after is not None and page[0].id == after:
                raise StoreError(f"{self._http.where} does not page: {after!r} came twice")
            after = page[-1].id
            yield page
            size = min(size * 2, PAGE_DOCUMENTS)

    def _page(self, prefix: str, after: str | None, size: int) -> list[RawDocument]:
        bound = ONE_DOCUMENT_BYTES if size == 1 else ANSWER_BYTES
        return self._documents(self._family.page(prefix, after=after, size=size), bound)

    def by_id(self, ids: Collection[str]) -> Iterator[RawDocument]:
        """Yield those documents that are there."""
        for request in self._family.reads(tuple(ids)):
            try:
                yield from self._documents(request, ANSWER_BYTES)
            except AnswerTooLarge:
                yield from self._one_by_one(_ids_of(request))

    def _one_by_one(self, ids: Sequence[str]) -> Iterator[RawDocument]:
        for each in ids:
            (request,) = self._family.reads((each,))
            try:
                yield from self._documents(request, ONE_DOCUMENT_BYTES)
            except AnswerTooLarge:
                raise StoreError(
                    f"{self._http.where}: {each!r} has more than {ONE_DOCUMENT_BYTES} bytes"
                ) from None

    def _documents(self, request: Request, at_most_bytes: int) -> list[RawDocument]:
        def work() -> Any:
            return self._http.send(request, at_most_bytes=at_most_bytes)

        try:
            return self._family.documents(retrying(work))
        except BadAnswer as exc:
            raise StoreError(
                f"{self._http.where}: not an answer of version {self._family.name}: {exc}; "
                "check store.ravendb.version"
            ) from exc


def _ids_of(request: Request) -> list[str]:
    body: Any = request.body
    return list(body) if body is not None else [value for _, value in request.query]
