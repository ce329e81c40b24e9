"""Bringing handed-over timeouts back: which ones, and the outcome of each message that was found.

Source: design section 9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from migrator.errors import PreflightRefused
from migrator.ledger.states import HALF_DONE, BatchState, Mode
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.timeouts import RunId


class RecallOutcome(StrEnum):
    """What a message in a delay level turned out to be."""

    RESTORED = "restored"
    """Its row is back in its table; the message may go."""
    LEFTOVER = "leftover"
    """Its row is back already: a copy that a crash left, of a recall or of the hand-over."""
    TOO_NEAR = "too_near"
    """It is due so soon that it is left to the broker."""
    OUT_OF_SCOPE = "out_of_scope"
    """The ledger knows it, but it is not meant."""
    UNSETTLED = "unsettled"
    """The ledger does not say that it was handed over: its batch is doubtful, say; it stays."""
    TAKEN = "taken"
    """The table has its id again; a person has to look."""
    REFUSED = "refused"
    """Its table does not take it: a trigger, a rule or a constraint refuses it; it stays."""
    STORE_GONE = "store_gone"
    """The store it came from is gone, or is not the one of the settings; it stays."""
    DIFFERENT = "different"
    """It bears the tag of a migrated row, but neither its id nor its content."""
    FOREIGN = "foreign"
    """It bears no tag of this ledger, or one of a row that is no longer known."""


MARGIN: Final = timedelta(minutes=1)
"""What is due within this is left to the broker, unless the operator sets another margin."""
MAY_GO: Final = frozenset({RecallOutcome.RESTORED, RecallOutcome.LEFTOVER})
"""Outcomes after which the message is taken out of its level."""
STAYED: Final = (
    RecallOutcome.TOO_NEAR,
    RecallOutcome.UNSETTLED,
    RecallOutcome.TAKEN,
    RecallOutcome.REFUSED,
    RecallOutcome.STORE_GONE,
    RecallOutcome.DIFFERENT,
)
"""Outcomes that leave a migrated message where it is."""
_IN_LEDGER: Final = HALF_DONE | {BatchState.CLAIMED, BatchState.STAGING}
"""States of an open batch of which nothing can have left migrator's own queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which rows are to come back; None means any."""

    endpoints: Collection[StoreEndpoint] | None = None
    run: RunId | None = None
    since: datetime | None = None
    """When a batch was claimed, inclusive; aware, UTC."""
    only_handed_over: bool = False
    """Whether claimed rows and those in quarantine stay; what follows is of handed-over rows."""
    destination: str | None = None
    """As in the Destination column."""
    due_from: datetime | None = None
    """Inclusive; aware, UTC."""
    due_until: datetime | None = None
    """Exclusive; aware, UTC."""

    @property
    def sources(self) -> Collection[str] | None:
        """Where the endpoints' rows come from; None: of every endpoint."""
        return None if self.endpoints is None else {each.source for each in self.endpoints}

    @property
    def takes_quarantined(self) -> bool:
        """Whether rows in quarantine come back: no run and no time tells them apart."""
        return (self.run, self.since) == (None, None) and not self.only_handed_over

    def may_mean(self, batch: Batch) -> bool:
        """Return whether rows of *batch* may be meant once it is handed over."""
        is_source = self.sources is None or batch.source in self.sources
        is_before = self.since and batch.claimed_at and batch.claimed_at < self.since
        return is_source and self.run in (None, batch.run) and not is_before

    def covers(self, batch: Batch) -> bool:
        """Return whether *batch*, which is not handed over, is meant."""
        return not self.only_handed_over and self.may_mean(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallForecast:
    """What the ledger expects a recall to find, by due time; the broker was not asked."""

    in_levels: int
    """Due later than the margin: they can come back."""
    too_near: int
    """Due within the margin: they are left to the broker."""
    left: int
    """Already due: they are with their destinations."""
    possible_until: datetime | None
    """When the first of *in_levels* gets too near, or somewhat earlier; None: there is none."""
    may_find: bool
    """Whether a recall could meet anything: also copies whose rows are back already."""
    is_exact: bool = True
    """False: too many batches are due in part; they were counted by their due times."""

    @property
    def was_handed_over(self) -> bool:
        """Whether there ever was anything to recall."""
        return bool(self.in_levels or self.too_near or self.left)

    @property
    def document(self) -> dict[str, object]:
        """The same as plain values for JSON."""
        return {
            "in_levels": self.in_levels,
            "too_near": self.too_near,
            "left": self.left,
            "possible_until": self.possible_until,
            "is_exact": self.is_exact,
        }


def demand_settled(batches: Iterable[Batch], scope: Scope) -> None:
    """Return when none of the open *batches* that *scope* means may still be handed over.

    Other senders are not affected: what they send into the levels meanwhile is left there.

    Raises:
        PreflightRefused: Some may; says which.
    """
    meant = [
        batch for batch in batches if batch.mode is not Mode.DISPATCH and scope.may_mean(batch)
    ]
    sent = [batch.id for batch in meant if batch.state not in _IN_LEDGER]
    if sent:
        raise PreflightRefused(
            f"batches {', '.join(map(str, sent))} may be on their way to the broker, and are not "
            "settled; run this again with `broker.delays` as it was when they were handed over"
        )
    if meant:
        raise PreflightRefused(
            f"batches {', '.join(str(batch.id) for batch in meant)} are claimed, and would be "
            "handed over afterwards; a rollback of all of the endpoint or run puts them back"
        )
