"""Deleting the native delays of a real broker: only when nothing is in them, and never by half."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from migrator.broker.admin import admin_session
from migrator.broker.levels import level_queues
from migrator.broker.link import declare_entries
from migrator.broker.management import ManagementApi, management_settings
from migrator.broker.removal import DelaysRemoval
from migrator.broker.topology import create_delays, inspect_delays
from migrator.domain.removal import DelaysFound
from migrator.domain.routing import DelaysVersion, delivery_exchange, level_name
from migrator.errors import PreflightRefused
from tests.conftest import Vhost
from tests.unit.broker.material import V1, V2, connection, plain_channel, wait_until

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

    def removal(self, fault: Callable[[str], None] = lambda _step: None) -> DelaysRemoval:
        return DelaysRemoval(
            self.settings,
            self.api,
            self.version,
            settle=lambda: time.sleep(0.3),
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

        wait_until(is_told, seconds=20)

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
    vhost.node.ctl("eval", TICK.format(500))  # queues take it over when they are declared
    made = Place(vhost, version)
    vhost.node.ctl("eval", TICK.format(5000))
    try:
        yield made
    finally:
        made.api.close()


def at(step: str, hit: int, then: Callable[[], None]) -> Callable[[str], None]:
    """Return a fault point that does something when *step* is reached the *hit*-th time."""
    left = hit

    def reached(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and left == 0:
            then()

    return reached


def die() -> None:
    """End as a kill would."""
    raise KilledError


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
        for text in ("level-20 holds 1 messages", "lead into the levels", "bound to the delays"):
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
                delays.removal(at(step, hit, die)).delete(even_if_bound=True)
            assert delays.look().is_partly_gone
        with pytest.raises(PreflightRefused, match="Sales was bound to it meanwhile"):
            delays.removal().delete(even_if_bound=False)
        assert list(delays.look().exchanges) == [delivery]
        delays.removal().delete(even_if_bound=True)
        assert delays.look().is_absent
        delays.removal().delete(even_if_bound=False)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    ("step", "hit", "level"), [("removal.shut", 9, 19), ("removal.dropped", 4, 2)]
)
def test_a_message_that_comes_meanwhile_brings_everything_back(
    vhost: Vhost, version: DelaysVersion, step: str, hit: int, level: int
) -> None:
    """It stays in its level, and every exchange, queue and binding is there again."""
    with place(vhost, version) as delays:
        with pytest.raises(PreflightRefused, match="everything was declared again"):
            delays.removal(at(step, hit, lambda: delays.put(level))).delete(even_if_bound=False)
        assert delays.is_whole
        assert f"level-{level:02d} holds 1 messages" in delays.against()


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
        wait_until(lambda: "level-00 holds 1 messages" in delays.against(), seconds=12)
