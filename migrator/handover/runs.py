"""Batches of other runs: handed over by the terms of their own run, or passed to other daemons.

Runs of this process use its settings. A batch that another run claimed (of a dead daemon, or of an
earlier process) uses the terms which that run recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from migrator.handover.direct import DirectHandOver
from migrator.handover.prepare import Preparer
from migrator.ledger.run_terms import BrokerPlace, RunTerms, read_place
from migrator.ledger.work import Batch
from migrator.nservicebus.timeouts import EndpointName, RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    preparer: Preparer
    direct: DirectHandOver


class RunOptions(Protocol):
    def options_of(self, run: RunId) -> Mapping[str, Any]: ...


@dataclass(kw_only=True, eq=False)
class OtherRuns:
    """Hands over batches of other runs; one instance per thread, as it remembers answers."""

    own: Collection[RunId]
    place: BrokerPlace
    """The broker of this process."""
    runs: RunOptions
    terms_now: Callable[[EndpointName], RunTerms]
    new: Callable[[RunTerms], HandOver]

    def __post_init__(self) -> None:
        self._options: dict[RunId, Mapping[str, Any]] = {}
        self._hand_overs: dict[RunId, HandOver] = {}
        self._frame_max_bytes: int | None = None
        self._body_max_bytes: int | None = None

    def elsewhere(self, run: RunId) -> BrokerPlace | None:
        """Return the broker to which *run* sends its timeouts; None: it may be this one."""
        if run in self.own:
            return None
        place = read_place(self._options_of(run))
        return None if place.may_be(self.place) else place

    @property
    def known_elsewhere(self) -> Collection[RunId]:
        """The runs asked about so far whose broker is another one."""
        return [run for run in self._options if self.elsewhere(run) is not None]

    def hand_over(self, batch: Batch) -> HandOver | None:
        """Return None if the run of *batch* is of this process."""
        if batch.run in self.own:
            return None
        found = self._hand_overs.get(batch.run)
        if found is None:
            now = self.terms_now(batch.endpoint)
            found = self.new(RunTerms.read(self._options_of(batch.run), now))
            if self._frame_max_bytes is not None:
                found.preparer.limit_frames(self._frame_max_bytes)
            if self._body_max_bytes is not None:
                found.preparer.limit_bodies(self._body_max_bytes)
            self._hand_overs[batch.run] = found
        return found

    def limit_frames(self, frame_max_bytes: int) -> None:
        self._frame_max_bytes = frame_max_bytes
        for each in self._hand_overs.values():
            each.preparer.limit_frames(frame_max_bytes)

    def limit_bodies(self, body_max_bytes: int) -> None:
        self._body_max_bytes = body_max_bytes
        for each in self._hand_overs.values():
            each.preparer.limit_bodies(body_max_bytes)

    def _options_of(self, run: RunId) -> Mapping[str, Any]:
        found = self._options.get(run)
        if found is None:
            found = self._options[run] = self.runs.options_of(run)
        return found
