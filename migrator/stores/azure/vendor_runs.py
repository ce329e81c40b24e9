"""What a half-finished run of the vendor's migration tool leaves in an account.

Source: reference ``legacy-stores.md`` 5.5 and 5.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from azure.core.exceptions import ResourceNotFoundError

from migrator.errors import StoreError
from migrator.stores.azure.account import Account, paged
from migrator.stores.azure.entities import HIDDEN, OWNER, text_of

_STATE_TABLE: Final = "timeoutsmigrationtoolstate"
_OPEN: Final = frozenset({0, 1})
_COMPLETED: Final = 2
_PAST_HIDDEN: Final = HIDDEN[:-1] + chr(ord(HIDDEN[-1]) + 1)


def unfinished_vendor_runs(account: Account) -> Sequence[str]:
    """Return each open run, and each set of hidden timeouts that no completed run explains.

    Timeouts that a completed run hid are moved already; they are left out everywhere.
    """
    found, completed = [], list[str]()
    for run in _states(account):
        endpoint, hidden = text_of(run, "EndpointName"), text_of(run, "UniqueHiddenEndpointName")
        if run.get("Status") in _OPEN:
            found.append(
                f"table {_STATE_TABLE}: a run of the vendor's tool for {endpoint!r} is open"
            )
        elif run.get("Status") == _COMPLETED and hidden:
            completed.append(hidden)
    for owner, count in sorted(_hidden(account).items()):
        if not any(hidden in owner for hidden in completed) and not found:
            found.append(f"{count} timeouts are hidden as {owner!r}, and no completed run says why")
    return found


def _states(account: Account) -> Iterator[Any]:
    table = account.other_table(_STATE_TABLE)
    place = f"table {_STATE_TABLE}"
    pages = table.query_entities("PartitionKey ne @none", parameters={"none": ""}).by_page()
    try:
        for page in paged(pages, doing="looking for a run of the vendor's tool", place=place):
            yield from page
    except StoreError as exc:
        if not isinstance(exc.__cause__, ResourceNotFoundError):
            raise  # else the tool has never run here


def _hidden(account: Account) -> Counter[str]:
    table = account.table
    place = f"table {table.table_name}"
    where = f"{OWNER} ge @first and {OWNER} lt @past"
    parameters = {"first": HIDDEN, "past": _PAST_HIDDEN}
    pages = table.query_entities(where, parameters=parameters, select=[OWNER]).by_page()
    found = Counter[str]()
    for page in paged(pages, doing="looking for hidden timeouts", place=place):
        found.update(text_of(entity, OWNER) or "" for entity in page)
    return found
