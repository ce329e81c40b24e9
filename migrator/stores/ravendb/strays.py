"""Looks for timeouts whose ids begin otherwise than said, which no listing would ever show.

Ids are the application's to choose; a listing by prefix believes that they are as usual. What the
server has in a collection is asked for at both ends, the oldest and the newest: a convention that
is another, or that was changed once, shows there. Source: reference ``legacy-stores.md`` 3.1, 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from migrator.database.failures import retrying
from migrator.errors import StoreError
from migrator.stores.ravendb.families import BadAnswer, Family, RawDocument
from migrator.stores.ravendb.http import RavenHttp

_LOOKED_AT: Final = 32
"""Documents at each end."""


def refuse_strays(
    http: RavenHttp, family: Family, collections: Sequence[str], prefixes: Sequence[str]
) -> None:
    """Refuse collections that have ids with none of *prefixes*; a 3.5 server cannot be asked.

    Raises:
        StoreError: There are such; names one and the setting.
        StoreUnavailable: No answer.
    """
    known = tuple(prefix.lower() for prefix in prefixes)
    for collection in collections:
        for raw in _ends_of(http, family, collection):
            if not raw.id.lower().startswith(known):
                raise StoreError(
                    f"{http.where}: {raw.id[:200]!r} is in collection {collection!r} and begins "
                    f"with none of {', '.join(prefixes)}; say in store.ravendb.prefixes what ids "
                    "begin with"
                )


def _ends_of(http: RavenHttp, family: Family, collection: str) -> Sequence[RawDocument]:
    first, total = _part_of(http, family, collection, 0)
    if total <= _LOOKED_AT:
        return first
    last, _ = _part_of(http, family, collection, total - _LOOKED_AT)
    return [*first, *last]


def _part_of(
    http: RavenHttp, family: Family, collection: str, start: int
) -> tuple[Sequence[RawDocument], int]:
    request = family.part_of_collection(collection, start=start, size=_LOOKED_AT)
    if request is None:
        return (), 0

    def work() -> Any:
        return http.send(request)

    answer = retrying(work)
    try:
        found = family.documents(answer)
    except BadAnswer as exc:
        raise StoreError(
            f"{http.where}: not an answer of version {family.name}: {exc}; "
            "check store.ravendb.version"
        ) from exc
    total = answer.get("TotalResults")
    return found, total if isinstance(total, int) else len(found)
