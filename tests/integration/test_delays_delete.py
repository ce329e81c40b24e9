"""Deleting the native delays of a real broker: only when nothing is in them, and never by half."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from migrator.decommission.levels import DelaysFound, DelaysRemoval
from migrator.delays.routing import DelaysVersion, delivery_exchange, level_name
from migrator.delays.topology import create_delays, declare_entries, inspect_delays, level_queues
from migrator.errors import PreflightRefused, TargetError
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.management import ManagementApi, management_settings
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import V1, V2, connection, plain_channel, wait_until

TICK = "application:set_env(rabbit, quorum_tick_interval, {})."


class KilledError(Exception):
    """Stands for the end of the process."""


class Place:
    """One generation in a virtual host of its own."""

    def __init__(self, vhost: Vhost, version: DelaysVersion) -> None:
        self.url = vhost.amqp_url
        self.version = version
        self.settings = connection(self.url)
        self.api = ManagementApi(
            management_settings(self.settings.address, vhost.node.management_url, self.settings.tls)
        )
        create_delays(self.settings, version)

    def removal(
        self,
        fault: Callable[[str], None] = lambda _step: None,
        settle: Callable[[], None] = lambda: time.sleep(0.3),
    ) -> DelaysRemoval:
        return DelaysRemoval(
            self.settings,
            self.api,
            self.version,
            settle=settle,
            fault=fault,
        )

    def look(self) -> DelaysFound:
        return self.removal().look()

    def against(self, *, even_if_bound: bool = False) -> str:
        """Return all that speaks against deleting."""
        return "; ".join(self.look().obstacles(even_if_bound=even_if_bound))

    def until_told(self) -> None:
        """Wait until the broker has counts of all levels, and none of a message."""

        def is_told() -> bool:
            queues = level_queues(self.api, self.version)
            return all(queue.is_told and not queue.total for queue in queues)

        wait_until(is_told, seconds=60)

    def put(self, level: int) -> None:
        """Put a message straight into the queue of a level."""
        with plain_channel(self.url) as channel:
            channel.confirm_delivery()
            channel.basic_publish("", level_name(self.version, level), b"")

    def purge(self, level: int) -> None:
        with plain_channel(self.url) as channel:
            channel.queue_purge(level_name(self.version, level))

    @property
    def is_whole(self) -> bool:
        found = inspect_delays(self.settings, self.version, find_bindings=self.api.bindings_from)
        return found.is_usable


@contextmanager
def place(vhost: Vhost, version: DelaysVersion) -> Iterator[Place]:
    """Make a generation whose levels count themselves often."""
    is_quorum = version is V2
    if is_quorum:
        vhost.node.evaluate(TICK.format(500))  # queues take it over when they are declared
    made = Place(vhost, version)
    try:
        yield made
    finally:
        made.api.close()
        if is_quorum:
            vhost.node.evaluate(TICK.format(5000))


def at(
    step: str, hit: int, then: Callable[[], None], *, for_good: bool = False
) -> Callable[[str], None]:
    """Return a fault point: *then* when *step* is reached the *hit*-th time, or from then on."""
    left = hit

    def reached(name: str) -> None:
        nonlocal left
        left -= name == step
        if (left == 0 and name == step) or (left <= 0 and for_good):
            then()

    return reached


def die() -> None:
    """End as a kill does: reached for good, nothing is made again either."""
    raise KilledError


def end() -> None:
    """End as Ctrl-C does."""
    raise KeyboardInterrupt


BOTH = pytest.mark.parametrize("version", [V2, pytest.param(V1, marks=pytest.mark.slow)])


@BOTH
def test_delays_go_when_nothing_is_in_them(vhost: Vhost, version: DelaysVersion) -> None:
    """Refused with a message, a way in or an endpoint; killed twice, run again, all is gone."""
    with place(vhost, version) as delays:
        delivery = delivery_exchange(version)
        with plain_channel(delays.url) as channel:
            channel.queue_declare("Sales", durable=True)
            channel.queue_bind("Sales", delivery, "#.Sales")
        with admin_session(delays.settings, purpose="test") as admin:
            entries = declare_entries(admin, version)
        delays.put(20)
        against = delays.against()
        for text in ("level-20 holds 1 message;", "lead into the levels", "bound to the delays"):
            assert text in against
        delays.purge(20)
        with plain_channel(delays.url) as channel:
            for name in entries:
                channel.exchange_delete(name)
        delays.until_told()
        assert delays.against().startswith("still bound to the delays: Sales;")
        assert delays.against(even_if_bound=True) == ""
        for step, hit in (("removal.shut", 3), ("removal.dropped", 2)):
            with pytest.raises(KilledError):
                delays.removal(at(step, hit, die, for_good=True)).delete(even_if_bound=True)
            assert delays.look().is_partly_gone
        delays.removal().delete(even_if_bound=True)
        assert delays.look().is_absent
        delays.removal().delete(even_if_bound=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "hit", "comes", "raised", "told"),
    [
        ("removal.looked", 23, "message", PreflightRefused, "level-05 was not del.* 1 message "),
        (
            "removal.looked",
            23,
            "consumer",
            PreflightRefused,
            r"level-05 was not del.* 1 consumer\b",
        ),
        (
            "removal.shut",
            3,
            "binding",
            PreflightRefused,
            "something else: nsb.delay-level-05 → Spy",
        ),
        ("removal.dropped", 28, "endpoint", PreflightRefused, "something was bound to"),
        ("removal.shut", 3, "refusal", TargetError, "ACCESS_REFUSED.* is as it was"),
        ("removal.ended", 1, "ctrl-c", KeyboardInterrupt, "^$"),
    ],
)
def test_whatever_ends_it_all_is_as_it_was(
    vhost: Vhost, step: str, hit: int, comes: str, raised: type[BaseException], told: str
) -> None:
    """Entities, bindings of others among them, and what came; v1 is quicker."""
    with place(vhost, V1) as delays, plain_channel(delays.url) as channel:
        delays.until_told()
        level, delivery = level_name(V1, 5), delivery_exchange(V1)
        for name in ("Spy", "Sales"):
            channel.queue_declare(name, durable=True)
        is_bound = comes == "ctrl-c"
        if is_bound:
            channel.queue_bind("Sales", delivery, "#.Sales", {"x": "1"})

        def come() -> None:
            {
                "message": lambda: delays.put(5),
                "consumer": lambda: channel.basic_consume(level, lambda *_: None),
                "binding": lambda: channel.queue_bind("Spy", level, "#"),
                "endpoint": lambda: channel.queue_bind("Sales", delivery, "#.Sales"),
                "refusal": lambda: vhost.node.set_permissions(
                    vhost.name, "guest", configure="^nsb.delay-level-([12].|0[6789])$"
                ),
                "ctrl-c": end,
            }[comes]()

        with pytest.raises(raised, match=told):
            delays.removal(at(step, hit, come)).delete(even_if_bound=is_bound)
        assert delays.is_whole
        if comes == "message":
            assert "level-05 holds 1 message;" in delays.against()
        bound = {each.target.name: each.arguments for each in delays.look().bound}
        expected: dict[str, dict[str, object]] = {
            "binding": {"Spy": {}},
            "endpoint": {"Sales": {}},
            "ctrl-c": {"Sales": {"x": "1"}},
        }
        assert bound == expected.get(comes, {})


def test_the_second_look_sees_whatever_the_first_would(vhost: Vhost) -> None:
    """Not messages alone: a consumer, and ways in of ours."""
    with place(vhost, V2) as delays, plain_channel(delays.url) as channel:

        def come() -> None:
            channel.exchange_declare("migrator.router.v2", "headers", durable=True)
            channel.queue_bind(level_name(V2, 3), "migrator.router.v2", "")
            channel.basic_consume(level_name(V2, 4), lambda *_: None)

        with pytest.raises(PreflightRefused) as caught:
            delays.removal(settle=come).delete(even_if_bound=False)
        told = ("consumers are on", "lead into the levels", "is as it was")
        assert [text for text in told if text not in str(caught.value)] == []
        assert delays.is_whole


def test_what_cannot_be_made_again_is_told(vhost: Vhost) -> None:
    """And who can; whatever could be made again is there."""
    with place(vhost, V1) as delays:
        delays.until_told()
        levels = "^nsb.delay-level-([01].|2[0123456])$"  # all but level 27, which is gone by then

        def forbid() -> None:
            vhost.node.set_permissions(vhost.name, "guest", configure=levels)
            raise KeyboardInterrupt

        with pytest.raises(TargetError, match=r"level-27.*`migrator delays create` declares it"):
            delays.removal(at("removal.dropped", 3, forbid)).delete(even_if_bound=False)
        found = delays.look()
        assert (len(found.exchanges), len(found.queues)) == (28, 27)


@pytest.mark.slow
def test_what_is_held_is_not_deleted(vhost: Vhost) -> None:
    """A message that expired and finds no queue is in no count of AMQP; the API tells it."""
    with place(vhost, V2) as delays:
        delays.until_told()
        with plain_channel(delays.url) as channel:
            channel.confirm_delivery()
            key = "0." * 27 + "1.Nobody"
            channel.basic_publish(level_name(V2, 0), key, b"")
        time.sleep(1.5)
        with plain_channel(delays.url) as channel:
            found = channel.queue_declare(level_name(V2, 0), passive=True)
            assert found.method.message_count == 0
        wait_until(lambda: "level-00 holds 1 message;" in delays.against(), seconds=60)
