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
from migrator.stores.ravendb.listing import SMALLEST_PAGE, DoesNotPageError, Listing

PAGE_DOCUMENTS: Final = 1024
"""A 3.5 server gives no more, whatever is asked for."""


class RavenReader:
    """Reads of one database; each is tried again a little later while there is no answer."""

    def __init__(self, http: RavenHttp, family: Family) -> None:
        """Read with *http*, in the form of *family*."""
        self._http = http
        self._family = family

    def pages(self, prefix: str) -> Iterator[Sequence[RawDocument]]:
        """Yield all documents whose id starts with *prefix*, in pages, in the order of ids.

        What is removed meanwhile makes it skip nothing; see ``listing``. Pages are smaller where
        documents are large.

        Raises:
            StoreUnavailable: No answer.
            StoreError: Two documents alone are too large; the server does not page.
        """
        listing = Listing()
        size = PAGE_DOCUMENTS // 4
        while not listing.is_done:
            try:
                page = self._page(prefix, listing.after, size)
            except AnswerTooLarge:
                if size == SMALLEST_PAGE:
                    raise StoreError(
                        f"{self._http.where}: the two documents behind {listing.after or prefix!r} "
                        f"have more than {ONE_DOCUMENT_BYTES} bytes"
                    ) from None
                size = max(size // 4, SMALLEST_PAGE)
                continue
            try:
                new = listing.add(page)
            except DoesNotPageError as exc:
                raise StoreError(f"{self._http.where} does not page: {exc}") from exc
            if new:
                yield new
            size = min(size * 2, PAGE_DOCUMENTS)

    def _page(self, prefix: str, after: str | None, size: int) -> list[RawDocument]:
        bound = ONE_DOCUMENT_BYTES if size == SMALLEST_PAGE else ANSWER_BYTES
        return self._documents(self._family.page(prefix, after=after, size=size), bound)

    def by_id(self, ids: Collection[str]) -> Iterator[RawDocument]:
        """Yield those documents that are there, in the order of *ids*, a few read ahead."""
        for request in self._family.reads(tuple(ids)):
            asked = _ids_of(request)
            try:
                found = {each.id: each for each in self._documents(request, ANSWER_BYTES)}
            except AnswerTooLarge:
                yield from self._one_by_one(asked)
            else:
                yield from (found[each] for each in asked if each in found)

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
    if body is None:
        return [value for _, value in request.query]
    return list(body["Ids"] if isinstance(body, dict) else body)
