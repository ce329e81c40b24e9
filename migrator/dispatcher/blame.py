"""Which of many letters it was that the broker ended the channel for.

A missing permission, or a message larger than the broker takes, ends the channel, and with it the
link; sent again with the others, it would end the next one, for ever. So what was without an
answer then is sent one by one, until the guilty one is found; what is done with that is the
caller's business. Outlives the links.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from migrator.dispatcher.outbox import Item, StoredRow
from migrator.errors import TargetError, TargetUnavailable
from migrator.nservicebus.incoming import normalised_headers


class Blame:
    """Suspects and culprits among letters."""

    def __init__(self) -> None:
        """Suspect nobody."""
        self._suspects: set[Hashable] = set()
        self._guilty: dict[Hashable, TargetError] = {}

    def chosen(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return which of *items* may be sent together: a suspect always goes alone."""
        if not self._suspects:
            return items
        suspect = next((item for item in items if _key(item) in self._suspects), None)
        return items if suspect is None else [suspect]

    def note(self, items: Sequence[Item], error: TargetError) -> None:
        """Remember that sending *items*, all without an answer, ended with *error*."""
        if isinstance(error, TargetUnavailable):
            return  # nobody's fault
        if len(items) == 1:
            self._guilty[_key(items[0])] = error
        self._suspects.update(_key(item) for item in items)

    def clear(self, items: Sequence[Item]) -> None:
        """Remember that *items* were answered."""
        if self._suspects:
            self._suspects.difference_update(_key(item) for item in items)

    def verdict(self, item: Item) -> TargetError | None:
        """Return why *item* must not be sent again as it is, once; None: it may be sent."""
        if not self._guilty:
            return None
        error = self._guilty.pop(_key(item), None)
        if error is not None:
            self._suspects.discard(_key(item))
        return error


def _key(item: Item) -> Hashable:
    """Return what tells an item from others over links and redeliveries."""
    if isinstance(item, StoredRow):
        return item.row.id
    message = item.delivery.message
    if message.problem is not None:
        return type(item).__name__, item.delivery.queue, message.raw_properties
    # not as they came: a quorum queue counts in them how often it has delivered the message
    headers = frozenset(normalised_headers(message).items())
    return type(item).__name__, item.delivery.queue, message.message_id, headers
