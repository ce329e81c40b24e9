"""Looks for live timeouts whose time entries are in partitions of another scope.

Nobody would ever find them: neither a claim nor a count.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any

from migrator.errors import StoreError
from migrator.stores.azure.account import Account
from migrator.stores.azure.entities import GUID
from migrator.stores.azure.partitions import PartitionScope
from migrator.stores.azure.reading import TimeoutReader


class Strays:
    """Tells time entries that are where nobody looks for them."""

    def __init__(self, account: Account, scope: PartitionScope, reader: TimeoutReader) -> None:
        """Time entries of *account* should be partitioned by *scope*."""
        self._account = account
        self._scope = scope
        self._reader = reader

    def refuse(self, page: Sequence[Any], live: Container[str] | None = None) -> None:
        """Refuse time entries of live timeouts in partitions of another scope.

        Args:
            page: Entities that are no main entries.
            live: Ids that have a main entry; None: the table is asked.

        Raises:
            StoreError: There is one; names the setting.
        """
        strays = [each for each in page if self._is_stray(each)]
        if live is None:
            has_main = self._account.each(lambda each: self._reader.is_live(each["RowKey"]), strays)
            strays = [each for each, yes in zip(strays, [*has_main], strict=True) if yes]
        else:
            strays = [each for each in strays if each["RowKey"] in live]
        if strays:
            first = strays[0]
            raise StoreError(
                f"table {self._account.table.table_name}: timeout {first['RowKey'][:200]!r} is in "
                f"partition {first['PartitionKey'][:200]!r}, not in "
                f"{self._scope.key_of(first['Time'])!r}; set store.azure.partition_key_scope to "
                "what the endpoints set in code"
            )

    def _is_stray(self, entity: Any) -> bool:
        moment = entity.get("Time")
        if not isinstance(moment, datetime) or entity["PartitionKey"] == self._scope.key_of(moment):
            return False
        return GUID.fullmatch(entity["PartitionKey"]) is None  # else it is a saga entry
