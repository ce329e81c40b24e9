"""What was seen in the levels, until the rows of the ledger are compared with it.

It is in a temporary file of SQLite, which has no name and is gone with the process, so that memory
does not grow with the levels. Rules of this file: messages come while they are held, so they are
only appended; they are sorted once, when all levels were gone through. The few that are looked for
again come later, and are found like all others.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from migrator.delays.tagged import TaggedMessage
from migrator.errors import ConfigError
from migrator.verify.report import EvidenceRecord, RowKey

_MAKE: Final = (
    "CREATE TABLE tagged (batch INTEGER, row_index INTEGER, timeout_id TEXT, attempt INTEGER,"
    " body_bytes INTEGER, body_hash TEXT, version TEXT, level INTEGER, delay_s INTEGER,"
    " seen_at_s REAL)"
)
_ADD: Final = "INSERT INTO tagged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SORT: Final = "CREATE INDEX IF NOT EXISTS by_row ON tagged (batch, row_index)"
_FIND: Final = (
    "SELECT * FROM tagged WHERE batch = ? AND row_index BETWEEN ? AND ?"
    " ORDER BY batch, row_index, rowid"
)


class TaggedMessages:
    """Messages that bear the tag of a row; to be used as a context manager.

    Raises, each of its methods:
        ConfigError: There is no room for them.
    """

    def __init__(self) -> None:
        with _explained():
            self._file = sqlite3.connect("", isolation_level=None)
            self._file.execute(_MAKE)
            self._file.execute("BEGIN")  # no other process reads it; a commit of each row is slow

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _: TracebackType | None
    ) -> None:
        """Remove them."""
        self._file.close()

    def add(self, messages: Iterable[TaggedMessage]) -> None:
        """Append *messages*."""
        with _explained():
            self._file.executemany(_ADD, messages)

    def sort(self) -> None:
        """Make ready for ``of``; what is added later is found, too, but takes longer to add."""
        with _explained():
            self._file.execute(_SORT)

    def of(self, rows: Iterable[EvidenceRecord]) -> Mapping[RowKey, Sequence[TaggedMessage]]:
        """Return the messages that bear the tags of *rows*, by batch and index, as they were seen.

        The timeout that they say they are may be another one. Rows without any are left out.
        """
        indexes, found = (
            defaultdict[int, set[int]](set),
            dict[RowKey, list[TaggedMessage]](),
        )
        for row in rows:
            indexes[row.batch].add(row.row_index)
        with _explained():
            for batch, wanted in indexes.items():
                for told in self._file.execute(_FIND, (batch, min(wanted), max(wanted))):
                    if told[1] in wanted:
                        found.setdefault(told[:2], []).append(TaggedMessage._make(told))
        return found


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what SQLite refuses into an error that says where the file is."""
    try:
        yield
    except sqlite3.Error as exc:
        raise ConfigError(
            f"what was seen in the levels cannot be written to a temporary file: {exc}; "
            "TMPDIR names the folder for it"
        ) from exc
