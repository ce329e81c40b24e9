"""Where a verification writes one line per timeout, for somebody who was not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from migrator.verify.evidence import Line


class Evidence(Protocol):
    """A file of evidence that is being written; what an interrupted one wrote is taken over.

    Raises, each of its methods:
        ConfigError: It cannot be read or written, or holds something else. What was written
            before is kept.
    """

    def taken_over(self) -> Iterable[Line]:
        """Return the lines that an interrupted verification wrote, to the end, before others end.

        None of them stays: those that still hold are written again. Until all were returned,
        being interrupted once more leaves what was there before.
        """
        ...

    def write(self, lines: Sequence[Line]) -> None:
        """Append *lines*; they are on the disk when this returns."""
        ...

    def amend(self, changes: Mapping[int, Line]) -> None:
        """Replace the lines of these ids by what was found out later; all of them or none."""
        ...
