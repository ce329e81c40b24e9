"""Which index the rows of a claim are found by, where the planner must not have a choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from migrator.stores.sql.legacy_table import LegacyTable


def due_order(legacy: LegacyTable) -> Sequence[str]:
    """Return the columns in whose order an endpoint's rows are due."""
    return ["Time"] if legacy.owner is None else ["Endpoint", "Time"]


def beginning_with(columns: Iterable[tuple[str, str]], names: Sequence[str]) -> str | None:
    """Return the first index that begins with the columns *names*; None: there is none.

    *columns* are pairs of an index and one of its columns, in the order in which it has them.
    """
    wanted = [name.casefold() for name in names]
    found = dict[str, list[str]]()
    for index, name in columns:
        found.setdefault(index, []).append(name.casefold())
    fitting = (index for index, its in found.items() if its[: len(wanted)] == wanted)
    return next(fitting, None)
