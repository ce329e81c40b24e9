"""What is known of RabbitMQ's releases: bugs that concern delay levels, and when support ended.

The table is that of ``docs/rabbitmq-4.md``, as of November 2026; later releases are not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Release = tuple[int, ...]
ADVISED: Final = (4, 3, 5)
"""The first release without any of ``BUGS``."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug of the broker."""

    text: str
    issue: str
    """In the project ``rabbitmq-server``, unless another is named."""
    releases: Sequence[tuple[Release, Release]]
    """From each first one up to, and without, the second."""

    def concerns(self, release: Release) -> bool:
        """Return whether *release* has it."""
        return any(first <= release < fixed for first, fixed in self.releases)


BUGS: Final = (
    Bug(
        "messages that are dead-lettered again can be dropped as a cycle",
        "#11159",
        [((3, 13, 0), (3, 13, 3))],
    ),
    Bug(
        "a queue can dead-letter through the wrong member of a cluster",
        "#16203",
        [((3, 10, 0), (4, 2, 7)), ((4, 3, 0), (4, 3, 1))],
    ),
    Bug(
        "levels can be left without a leader when a node is replaced",
        "#16652",
        [((3, 10, 0), (4, 3, 3))],
    ),
    Bug("Raft leaders can commit too early", "rabbitmq/ra#637", [((3, 10, 0), (4, 3, 3))]),
    Bug(
        "counts of levels can stand still after an upgrade from 3.13",
        "#16974",
        [((4, 2, 0), (4, 3, 4))],
    ),
    Bug(
        "a queue that recovers from a checkpoint can lack messages",
        "#17012",
        [((4, 3, 0), (4, 3, 5))],
    ),
)
SUPPORT_ENDED: Final[Mapping[Release, str]] = {
    (3, 10): "July 2023",
    (4, 0): "April 2025",
    (4, 1): "January 2026",
}


def known_bugs(release: Release) -> Sequence[Bug]:
    """Return the bugs of *release* that concern delay levels."""
    return [bug for bug in BUGS if bug.concerns(release)]


def support_ended(release: Release) -> str | None:
    """Return since when upstream does not support the series of *release*; None: it does."""
    series = release[:2]
    if series < (4, 0):
        return SUPPORT_ENDED.get(series, "before April 2025")
    return SUPPORT_ENDED.get(series)
