"""Which lane a thread takes next, and for what it waits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

import pytest

from migrator.errors import Interrupted, SourceGone
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.work import Lease
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, Lane
from migrator.service.lane_allocator import LaneAllocator
from migrator.service.worker import Stop


class Lanes:
    """Leases by lane, and lanes in which something is left open."""

    def __init__(self, owners: dict[int, str], *, left_open: Sequence[int] = ()) -> None:
        self.owners = owners
        self.left_open = [Lane(lane) for lane in left_open]
        self.evicted: list[tuple[int, str]] = []

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        if lane in self.owners:
            return None
        self.owners[lane] = owner
        return Lease(lane=lane, owner=owner, token=1)

    def evict(self, lane: Lane, owner: str) -> None:
        self.evicted.append((lane, owner))
        del self.owners[lane]

    def owner_of(self, lane: Lane) -> str | None:
        return self.owners.get(lane)

    def holders(self) -> Sequence[tuple[Lane, str]]:
        return [(Lane(lane), owner) for lane, owner in self.owners.items()]

    def orphaned_lanes(self) -> Sequence[Lane]:
        return [lane for lane in self.left_open if lane not in self.owners]

    def lanes_with_work(self, sources: Collection[str]) -> Sequence[Lane]:
        return self.left_open


def allocator(lanes: Lanes, stop: Stop, *, is_retired: bool = False) -> LaneAllocator:
    """Return what is to be had; only the process "dead" is known to be gone."""
    return LaneAllocator(
        lanes,  # type: ignore[arg-type]  # only what is asked
        LeaseKeeper(lanes, owner="me", duration=timedelta(minutes=1)),  # type: ignore[arg-type]  # the same
        is_surely_dead=lambda owner: owner == "dead",
        stop=stop,
        beat=lambda: None,
        is_ending=lambda: stop.draining.is_set() or is_retired,
    )


def test_what_a_dead_owner_left_comes_before_a_free_lane() -> None:
    """Its lease is ended at once, and its batches are late already."""
    lanes = Lanes({0: "other", 4: "dead"}, left_open=[4])
    assert allocator(lanes, Stop()).take_any().lease.lane == 4
    assert lanes.evicted == [(4, "dead")]


def test_the_first_free_lane_is_taken() -> None:
    """Another's is left alone."""
    assert allocator(Lanes({0: "other"}), Stop()).take_any().lease.lane == 1


def test_a_lane_that_is_not_for_handing_over_is_never_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of `verify --scan` and of a recall stay theirs, and dispatchers' too; it waits."""
    monkeypatch.setattr("migrator.service.lane_allocator._LOOK_AGAIN_S", 0.01)
    lanes, stop = Lanes(dict.fromkeys(range(SCAN_LANE), "other")), Stop()
    stop.draining.set()
    with pytest.raises(Interrupted, match="every lane is taken"):
        allocator(lanes, stop).take_any()
    assert set(lanes.owners) == set(range(SCAN_LANE))


def test_what_waits_for_a_person_is_neither_an_orphan_nor_waited_for() -> None:
    """Nobody here can go on with a lane that is doubtful, or has a stuck batch."""
    stop = Stop(doubtful={Lane(2)}, stuck={Lane(3): SourceGone("there is no such table")})
    found = allocator(Lanes({}, left_open=[2, 3, 5]), stop)
    assert found.orphans() == [5]
    assert found.of_others(["public.Sales_TimeoutData"]) == {5}
    assert found.take(Lane(5)) is not None
    assert found.of_others(["public.Sales_TimeoutData"]) == set()


@pytest.mark.parametrize("end", ["stop", "retire"])
def test_no_lane_is_taken_while_somebody_recalls(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, until the thread is to end."""
    monkeypatch.setattr("migrator.service.lane_allocator._LOOK_AGAIN_S", 0.01)
    lanes, stop = Lanes({RECALL_LANE: "other"}), Stop()
    if end == "stop":
        stop.draining.set()
    with pytest.raises(Interrupted, match="waiting for a recall"):
        allocator(lanes, stop, is_retired=end == "retire").take_any()
    assert lanes.owners == {RECALL_LANE: "other"}


def test_a_recall_of_a_dead_process_is_over() -> None:
    """Its lease is ended, and a lane is taken."""
    lanes = Lanes({RECALL_LANE: "dead"})
    assert allocator(lanes, Stop()).take_any().lease.lane == 0
    assert (RECALL_LANE, "dead") in lanes.evicted
