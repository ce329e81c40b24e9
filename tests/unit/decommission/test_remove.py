"""Decommissioning against a world in memory: killed anywhere, refused late, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from migrator.decommission.broker import DecommissionBroker, TopologyEditor
from migrator.decommission.queries import BEGUN, ENDED, UNDONE, DecommissionDatabase
from migrator.decommission.remove import Decommission
from migrator.decommission.rules import (
    BrokerSnapshot,
    DatabaseSnapshot,
    Options,
    Plan,
    read_bindings,
    still_whole,
)
from migrator.errors import AccessRefused, LeaseLost, TargetError, TargetUnavailable
from migrator.ledger.batches import SqlRuns
from migrator.ledger.leases import SqlLeases
from migrator.nservicebus.timeouts import BatchId, QueueName
from migrator.rabbitmq.entities import Binding, Entity, Kind
from tests.unit.decommission.decommissions import OWN_BINDINGS, TARGET, TIMEOUTS, broker

LEVEL = OWN_BINDINGS[-1].target.name
NOTHING: Callable[[], None] = lambda: None  # noqa: E731 - a default that does nothing


class Killed(BaseException):
    """The process was killed; nothing in it may run any further."""


@dataclass
class World(DecommissionBroker):
    """A broker, a table and an audit log that outlive the process."""

    entities: BrokerSnapshot = field(default_factory=broker)
    rows: int | None = 0
    events: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    is_dead: bool = False
    on_pause: Callable[[], None] = NOTHING
    on_unbind: Callable[[], None] = NOTHING
    on_delete: Callable[[Entity], str | None] = lambda _entity: None
    on_bind: Callable[[], None] = NOTHING
    absent: Sequence[str] = ()
    """Queues that no look tells of, and nothing can be bound to."""

    def alive(self) -> None:
        if self.is_dead:
            raise Killed

    # ── the broker ──────────────────────────────────────────────────────────────────────────

    def look(self, queue: QueueName) -> BrokerSnapshot | None:
        self.alive()
        return self.entities

    @contextmanager
    def editor(self) -> Iterator[TopologyEditor]:
        self.alive()
        yield Editor(self)

    def forget(self, entity: Entity) -> None:
        kinds = ("satellites", "retries", "lanes")
        if entity.kind is Kind.EXCHANGE:
            kinds = ("satellite_exchanges", "lane_exchanges", "shared")
        left: dict[str, Any] = {
            kind: [e for e in getattr(self.entities, kind) if getattr(e, "name", e) != entity.name]
            for kind in kinds
        }
        whole = still_whole(self.entities.bindings, [entity])
        self.entities = replace(self.entities, bindings=whole, **left)

    # ── store, ledger and audit log ───────────────────────────────────────────────────────

    def record(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> None:
        self.alive()
        self.events.append((kind, detail))


class Editor(TopologyEditor):
    """Changes a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def unbind(self, binding: Binding) -> None:
        world = self._world
        world.alive()
        world.on_unbind()
        left = [each for each in world.entities.bindings if each != binding]
        world.entities = replace(world.entities, bindings=left)

    def bind(self, binding: Binding) -> bool:
        world = self._world
        world.alive()
        world.on_bind()
        if binding.target.name in world.absent:
            return False
        found = dict.fromkeys([*world.entities.bindings, binding])
        world.entities = replace(world.entities, bindings=[*found])
        return True

    def delete(self, entity: Entity, *, if_unused: bool = True) -> str | None:
        world = self._world
        world.alive()
        if (why := world.on_delete(entity)) is None:
            world.forget(entity)
        return why


class Database(DecommissionDatabase):
    """Table, ledger and audit log of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def look(self, source: str, *, ignoring: Callable[[str], bool]) -> DatabaseSnapshot:
        events = self._world.events
        unfinished = recorded(events[-1]) if events else ()
        return DatabaseSnapshot(rows=self._world.rows, unfinished=unfinished)

    def drop(self, source: str) -> int:
        self._world.alive()
        self._world.rows = self._world.rows or None
        return self._world.rows or 0


def recorded(event: tuple[str, Mapping[str, Any]]) -> tuple[Binding, ...]:
    """Return the bindings that an event of the audit log tells of."""
    return read_bindings(event[1]["bindings"])


def run(
    world: World,
    *,
    drops_table: bool = True,
    die_at: int | None = None,
    guard: Callable[[], None] = NOTHING,
) -> Plan:
    """Decommission once in *world*; die at the step of that number."""
    steps = 0

    def fault(_step: str) -> None:
        nonlocal steps
        steps += 1
        if steps == die_at:
            world.is_dead = True
            raise Killed

    world.is_dead = False
    return Decommission(
        target=TARGET,
        options=Options(drops_table=drops_table),
        broker=world,
        database=Database(world),
        runs=cast(SqlRuns, world),
        leases=cast(SqlLeases, None),  # whoever calls ``run`` brings a guard
        lease=timedelta(0),
        owner="me",
        fault=fault,
        pause=lambda _s: world.on_pause(),
    ).run(guard)


def is_empty(world: World) -> bool:
    """Return whether nothing is left of the endpoint, nor of ours."""
    look = world.entities
    return not any(
        (look.satellites, look.satellite_exchanges, look.retries, look.lanes, look.shared)
    )


def arrive(world: World, queue: str = TIMEOUTS) -> None:
    """Put a message into a satellite that is there."""
    found = [replace(q, ready=1) if q.name == queue else q for q in world.entities.satellites]
    world.entities = replace(world.entities, satellites=found)


def test_all_of_it_goes() -> None:
    """And the audit log tells what was, and what happened to it."""
    world = World()
    done = run(world)
    assert is_empty(world)
    assert world.rows is None
    assert (done.refusals, done.bind_again, done.drops_table) == ((), (), True)
    assert (len(done.delete), done.is_done) == (10, True)
    assert [kind for kind, _ in world.events] == [BEGUN, ENDED]
    assert set(recorded(world.events[0])) == set(done.unbind)
    assert run(world).delete == ()
    assert [kind for kind, _ in world.events] == [BEGUN, ENDED]


def test_what_is_refused_changes_nothing() -> None:
    """Not even the audit log."""
    world = World(rows=1)
    before = world.entities
    assert [found.code for found in run(world).refusals] == ["rows_in_table"]
    assert (world.entities, world.events) == (before, [])


@pytest.mark.parametrize("die_at", range(1, 22))
def test_killed_at_any_step_the_next_one_ends_it(die_at: int) -> None:
    """A plain second call leaves what an undisturbed one leaves."""
    world = World()
    with pytest.raises(Killed):
        run(world, die_at=die_at)
    run(world)
    assert is_empty(world)
    assert world.rows is None
    assert world.events[-1][0] == (BEGUN if die_at == 21 else ENDED)


@pytest.mark.parametrize("die_at", range(1, 10))
def test_killed_while_cutting_and_refused_then_all_is_bound_again(die_at: int) -> None:
    """Something came meanwhile; however often it was killed, what was cut is known."""
    world = World()
    before = world.entities
    for again in (die_at, 1):
        with pytest.raises(Killed):
            run(world, die_at=again)
    arrive(world)
    done = run(world)
    assert [found.code for found in done.refusals] == ["messages"]
    assert set(map(str, world.entities.bindings)) == set(map(str, before.bindings))
    assert world.events[-1][0] == (UNDONE if done.bind_again else BEGUN)
    assert run(world).bind_again == ()


def test_what_could_not_be_bound_again_is_remembered() -> None:
    """An end of it was gone; the next one that is refused tries again."""
    world = World()
    before = world.entities
    with pytest.raises(Killed):
        run(world, die_at=9)
    arrive(world)
    world.absent = [LEVEL]
    assert len(run(world).bind_again) == len(before.bindings) - 2
    assert {each.target.name for each in recorded(world.events[-1])} == {LEVEL}
    assert world.events[-1][0] == UNDONE
    world.absent = ()
    assert len(run(world).bind_again) == 2
    assert set(map(str, world.entities.bindings)) == set(map(str, before.bindings))
    assert run(world).bind_again == ()


@pytest.mark.parametrize("drops_table", [False, True])
def test_ours_that_a_killed_one_cut_are_bound_again_though_nothing_else_is_left(
    drops_table: bool,
) -> None:
    """The satellites are gone, and somebody needs ours now."""
    world = World()
    with pytest.raises(Killed):
        run(world, die_at=15, drops_table=drops_table)
    assert not world.entities.satellite_exchanges
    world.entities = replace(world.entities, clients=["migrator x"])
    assert not world.entities.bindings
    done = run(world, drops_table=drops_table)
    assert (done.refusals, len(done.bind_again), len(world.entities.bindings)) == ((), 4, 4)
    assert done.drops_table is drops_table
    assert run(world, drops_table=drops_table).bind_again == ()


def test_what_comes_while_it_waits_makes_it_undo_everything() -> None:
    """The message stays, every binding is back, nothing was deleted."""
    world = World()
    before = world.entities
    world.on_pause = lambda: arrive(world)
    done = run(world)
    assert [found.code for found in done.refusals] == ["messages"]
    assert done.delete == ()
    assert set(map(str, world.entities.bindings)) == set(map(str, before.bindings))
    assert (world.rows, world.events[-1][0]) == (0, UNDONE)


def test_a_queue_that_the_broker_keeps_ends_it() -> None:
    """What was deleted before stays so; what is left is bound again."""
    world = World(on_delete=lambda e: "not empty" if e.name == TIMEOUTS else None)
    done = run(world)
    (refusal,) = done.refusals
    assert refusal.code == "still_there"
    assert "not empty" in refusal.text
    assert [each.name for each in done.delete] == ["migrator.retry.x.10"]
    assert len(world.entities.bindings) == 8
    assert world.rows == 0


def test_ours_stay_when_somebody_begins_meanwhile() -> None:
    """The satellites go; ours are bound again."""
    world = World()

    def begin() -> None:
        world.entities = replace(world.entities, clients=["migrator x"])

    world.on_pause = begin
    done = run(world)
    assert done.refusals == ()
    assert {each.name for each in done.delete} == {
        "migrator.retry.x.10",
        TIMEOUTS,
        "Sales.TimeoutsDispatcher",
    }
    assert len(done.bind_again) == 4
    assert len(done.keep) == 5


def test_rows_that_come_before_the_drop_are_kept() -> None:
    """The broker's side is gone; the table is not."""
    world = World()

    def come(_entity: Entity) -> str | None:
        world.rows = 2
        return None

    world.on_delete = come
    done = run(world)
    assert [found.code for found in done.refusals] == ["rows_in_table"]
    assert (done.drops_table, world.rows, world.events[-1][0]) == (False, 2, UNDONE)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), AccessRefused("no"), LeaseLost("gone")])
def test_whatever_ends_it_all_is_bound_again(error: BaseException) -> None:
    """Ctrl-C, a missing permission, a lost lease."""
    world = World()
    before = world.entities

    def fail() -> None:
        raise error

    world.on_pause = fail
    with pytest.raises(type(error)):
        run(world)
    assert set(map(str, world.entities.bindings)) == set(map(str, before.bindings))


def test_what_cannot_be_bound_again_is_told() -> None:
    """Both reasons, and what to do."""
    world = World()

    def fail() -> None:
        raise TargetUnavailable("the wire is cut")

    world.on_pause = world.on_bind = fail
    with pytest.raises(TargetError, match=r"could not be bound again: the wire is cut\. Run it"):
        run(world)
    world.on_pause = world.on_bind = NOTHING
    run(world)
    assert is_empty(world)


def test_a_lost_lease_ends_it_before_the_next_step() -> None:
    """Nothing is cut without it."""
    world = World()
    before = world.entities

    def lost() -> None:
        raise LeaseLost("gone")

    with pytest.raises(LeaseLost):
        run(world, guard=lost)
    assert world.entities == before
