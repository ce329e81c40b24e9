"""What became of the timeouts of a window that a database lost when it failed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migrator.nservicebus.tags import Attempt, RowTag
from migrator.nservicebus.timeouts import BatchId


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRow:
    """A message of ours that was met on the broker."""

    row: RowTag
    attempt: int


@dataclass(slots=True)
class Settlement:
    """How the rows of the window are settled, by where their messages were met."""

    from_store: int = 0
    """Rows that were in the store again while their messages wait in the levels: handed over."""
    from_batches: int = 0
    """Rows of batches under way whose messages wait in the levels: handed over as well."""
    not_sent: int = 0
    """Rows of batches under way that have not come to the levels: claimed, they are to go yet."""
    doubtful: int = 0
    """Rows due by now that were met nowhere: they may have been delivered, and may not."""
    doubtful_batches: list[BatchId] = field(default_factory=list)
    """What has them now; a person decides."""
    nowhere: int = 0
    """Messages in the levels whose rows are neither in the store nor in the ledger: they come."""
    committed: frozenset[Attempt] = frozenset()
    """Passes of which the ledger says that they were committed, or may have been."""

    @property
    def counts(self) -> Mapping[str, int | Sequence[int]]:
        """The same as plain values."""
        return {
            "handed_over_from_store": self.from_store,
            "handed_over_from_batches": self.from_batches,
            "not_sent": self.not_sent,
            "doubtful": self.doubtful,
            "doubtful_batches": [int(each) for each in self.doubtful_batches],
            "nowhere": self.nowhere,
        }
