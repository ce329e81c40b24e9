"""Refuses a database that is spread over shards: there a batch is no single transaction.

Documents could be removed without the receipt that tells of it, and nobody would know whether they
were ours to send. Source: asked of 6.2 and 7.0, which name each shard in place of the database.
"""

from __future__ import annotations

from typing import Any, Final

from migrator.database.failures import retrying
from migrator.errors import StoreError, StoreUnavailable
from migrator.stores.ravendb.families import Family, Modern
from migrator.stores.ravendb.http import RavenHttp

_SHARD: Final = "$"
"""Between the name of a database and the number of a shard; no name of a database may have it."""


def refuse_shards(http: RavenHttp, family: Family) -> None:
    """Refuse a sharded database; before 6 there are none.

    What the server does not want to tell is left to the next request, which says what is wrong.

    Raises:
        StoreError: It has shards, or is one.
        StoreUnavailable: No answer.
    """
    if not isinstance(family, Modern):
        return
    try:
        told = retrying(http.names)
    except StoreUnavailable:
        raise
    except StoreError:
        return
    if any(_SHARD in name for name in _names_in(told)):
        raise StoreError(
            f"{http.where} is sharded: a claim would be no single transaction there, and timeouts "
            "could be lost; nothing was changed. Move it to a database without shards first"
        )


def _names_in(told: Any) -> list[str]:
    listed = told.get("Databases") if isinstance(told, dict) else None
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
