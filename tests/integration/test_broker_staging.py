"""The staging queue on a real broker: all of an attempt or nothing, and doubt otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pika
import pytest

from dev.servers import RabbitNode
from migrator.delays.routing import DelaysVersion, entry_level, level_name
from migrator.delays.topology import create_delays
from migrator.errors import EntityMismatch, HandOverDoubtful, TargetUnavailable
from migrator.handover.link import RabbitLink
from migrator.handover.ports import Delayed, Staging
from migrator.nservicebus.tags import Attempt, build_tag
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import poison_queue, receipts_queue, router_exchange, staging_name
from tests.conftest import Vhost
from tests.support.proxy import Proxy
from tests.support.staging import await_staging
from tests.unit.rabbitmq.material import (
    LEDGER,
    V1,
    V2,
    an_attempt,
    chunks,
    connection,
    delayed,
    link_settings,
    message,
    opened,
    plain_channel,
    take,
    wait_until,
)

PlaceProxy = Callable[[str], Proxy]


@pytest.fixture
def lane(request: pytest.FixtureRequest) -> int:
    """A lane no other test of this module uses."""
    lanes: dict[str, int] = request.session.stash.setdefault(_LANES, {})
    return lanes.setdefault(request.node.nodeid, len(lanes) + 1)


_LANES = pytest.StashKey[dict[str, int]]()


@pytest.fixture
def link(url: str, lane: int) -> Iterator[RabbitLink]:
    """A link of the test's lane."""
    with opened(link_settings(url), lane=lane) as found:
        yield found


def _staging_of(lane: int) -> str:
    return staging_name(DelaysVersion.V2, LEDGER, Lane(lane))


def _receipts_of(lane: int) -> str:
    return receipts_queue(LEDGER, Lane(lane))


def _messages(count: int) -> list[Delayed]:
    """Return messages for every level above the few that end during a test."""
    return [delayed(2 ** (6 + row % 22) + row, row) for row in range(count)]


def _is_whole(staging: Staging, attempt: Attempt, count: int) -> bool:
    found = staging.unacked().get(attempt)
    return found is not None and len(found.rows) == count and found.has_receipt


def _stage(staging: Staging, attempt: Attempt, messages: list[Delayed]) -> frozenset[int]:
    staging.publish(attempt, chunks(messages))
    return _comes_back(staging, attempt, len(messages))


def _comes_back(staging: Staging, attempt: Attempt, count: int) -> frozenset[int]:
    assert await_staging(staging, lambda: _is_whole(staging, attempt, count))
    return frozenset(range(count))


def _commit(staging: Staging, attempt: Attempt, rows: frozenset[int]) -> None:
    staging.commit(attempt, rows)
    assert await_staging(staging, lambda: attempt in staging.receipts())


def _in_levels(url: str, version: DelaysVersion = V2) -> dict[int, int]:
    with plain_channel(url) as channel:
        return {
            level: channel.queue_declare(
                level_name(version, level), passive=True
            ).method.message_count
            for level in range(28)
        }


def _expected(messages: list[Delayed]) -> dict[int, int]:
    counts = dict.fromkeys(range(28), 0)
    for _, delay_s in messages:
        counts[entry_level(delay_s)] += 1
    return counts


@pytest.mark.parametrize("version", [V1, V2])
def test_a_committed_pass_is_in_its_levels_exactly_once(
    vhost: Vhost, version: DelaysVersion
) -> None:
    """Publish, hold, commit, receipt: each message ends up once, in the queue of its level."""
    url = vhost.amqp_url
    create_delays(connection(url), version)
    messages = _messages(1000)
    with opened(link_settings(url, version=version)) as link:
        staging = link.staging()
        rows = _stage(staging, an_attempt(), messages)
        assert staging.unacked()[an_attempt()].rows == rows
        assert sum(_in_levels(url, version).values()) == 0
        _commit(staging, an_attempt(), rows)
        assert not staging.unacked()
        staging.ack_receipt(an_attempt())
        staging.ack_receipt(an_attempt())
        assert not staging.receipts()
        wait_until(lambda: _in_levels(url, version) == _expected(messages))
    with opened(link_settings(url, version=version)) as link:
        staging = link.staging()
        assert not await_staging(
            staging, lambda: bool(staging.receipts() or staging.unacked()), seconds=0.5
        )


def test_a_staged_message_reaches_its_destination_whole(url: str, link: RabbitLink) -> None:
    """Through staging and router a message arrives with its native key and nothing of ours."""
    with plain_channel(url) as channel:
        channel.queue_declare("Sales.Orders", durable=True)
        channel.queue_bind("Sales.Orders", "nsb.v2.delay-delivery", "#.Sales.Orders")
    staging = link.staging()
    sent_s = time.monotonic()
    rows = _stage(staging, an_attempt(), [delayed(3, 0), delayed(1, 1)])
    staging.commit(an_attempt(), rows)
    first, second = take(url, "Sales.Orders", 2)
    assert first.at_s - sent_s >= 1
    assert second.at_s - sent_s >= 3
    assert first.routing_key == "0." * 27 + "1." + "Sales.Orders"
    ours = "NServiceBus.Transport.RabbitMQ.ConfirmationId"
    headers = {k: v for k, v in second.properties.headers.items() if not k.startswith("x-")}
    assert headers.pop(ours) == "1"  # every receiver strips this one
    assert headers == message().headers
    assert second.body == b"{}"


def test_nothing_reaches_a_level_without_a_commit(fresh_url: str) -> None:
    """A held attempt comes back whole on the next link, and can be discarded there."""
    messages = _messages(300)
    with opened(link_settings(fresh_url)) as link:
        _stage(link.staging(), an_attempt(), messages)
    with opened(link_settings(fresh_url)) as link:
        staging = link.staging()
        _comes_back(staging, an_attempt(), 300)
        staging.discard(an_attempt())
        staging.discard(an_attempt(batch=99))
        assert not staging.unacked()
        rows = _stage(staging, an_attempt(attempt=2), messages[:10])
        _commit(staging, an_attempt(attempt=2), rows)
    wait_until(lambda: _in_levels(fresh_url) == _expected(messages[:10]))
    with opened(link_settings(fresh_url)) as link:
        staging = link.staging()
        assert await_staging(staging, lambda: an_attempt(attempt=2) in staging.receipts())
        assert not staging.unacked()


def test_a_nack_that_would_take_along_others_is_not_sent(link: RabbitLink) -> None:
    """Commit refuses when rows, receipt or neighbours are not exactly the attempt."""
    staging = link.staging()
    rows = _stage(staging, an_attempt(1), _messages(5))
    _stage(staging, an_attempt(2), _messages(5))
    with pytest.raises(HandOverDoubtful, match="5 rows are unacked, 4"):
        staging.commit(an_attempt(1), rows - {0})
    with pytest.raises(HandOverDoubtful, match="0 rows are unacked, 5"):
        staging.commit(an_attempt(7), rows)
    with pytest.raises(HandOverDoubtful, match="also move messages of batch 1"):
        staging.commit(an_attempt(2), rows)
    staging.commit(an_attempt(1), rows)
    staging.commit(an_attempt(2), rows)
    assert await_staging(staging, lambda: len(staging.receipts()) == 2)


OURS = build_tag(LEDGER, an_attempt(), 0)


@pytest.mark.parametrize(
    ("queue_of", "app_id"),
    [
        (_staging_of, None),
        (_staging_of, build_tag("other", an_attempt(), 0)),
        (_staging_of, "migrator/abc123/1.1.0x"),
        (_receipts_of, "Sales"),
        (_receipts_of, OURS),
    ],
    ids=["nobody's", "another ledger's", "no number", "somebody's", "no receipt"],
)
def test_what_is_not_ours_is_moved_whole_and_nacked_never(
    url: str,
    link: RabbitLink,
    lane: int,
    caplog: pytest.LogCaptureFixture,
    queue_of: Callable[[int], str],
    app_id: str | None,
) -> None:
    """Before, amid and behind an attempt, which is committed as if it were alone."""
    queue, staging = queue_of(lane), link.staging()
    with plain_channel(url) as channel:
        channel.confirm_delivery()

        def put(*bodies: bytes) -> None:
            properties = pika.BasicProperties(
                app_id=app_id, headers={"NServiceBus.Transport.RabbitMQ.ConfirmationId": "3"}
            )
            for body in bodies:
                channel.basic_publish("", queue, body, properties)

        put(b"1", b"2" * 300_000)
        _stage(staging, an_attempt(5), _messages(2))
        put(b"3")
        rows = _stage(staging, an_attempt(6), _messages(5))
        put(b"4")
        staging.discard(an_attempt(5))
        _commit(staging, an_attempt(6), rows)
        staging.ack_receipt(an_attempt(6))

        def is_moved() -> bool:
            staging.move_strays()
            said = [vars(record) for record in caplog.records]
            moved = (e["messages"] for e in said if e.get("action") == "strays_moved")
            return sum(map(int, moved)) == 4

        assert await_staging(staging, is_moved)
    link.close()
    moved = take(url, poison_queue(LEDGER), 4)
    assert sorted(len(each.body) for each in moved) == [1, 1, 1, 300_000]
    assert {each.properties.app_id for each in moved} == {app_id}
    assert take(url, queue, 1, timeout_s=0.5) == []


def test_a_row_twice_is_doubtful(url: str, link: RabbitLink, lane: int) -> None:
    """Of two nobody knows which is ours: it stops the lane, and both stay in the queue."""
    queue, staging = _staging_of(lane), link.staging()
    with plain_channel(url) as channel:
        for _ in range(2):
            channel.basic_publish("", queue, b"?", pika.BasicProperties(app_id=OURS))

    def is_seen() -> bool:
        try:
            staging.unacked()
        except HandOverDoubtful as exc:
            return queue in str(exc)
        return False

    assert await_staging(staging, is_seen)
    with pytest.raises(HandOverDoubtful):
        staging.receipts()
    link.close()
    assert [got.body for got in take(url, queue, 2)] == [b"?"] * 2


@pytest.mark.parametrize("when", ["held", "nacked", "left by an earlier link"])
def test_an_attempt_given_out_again_on_our_channel_ends_the_link(
    url: str, rabbit_node: RabbitNode, lane: int, when: str
) -> None:
    """A queue that lost sight of us for a moment gives all out again: nothing is doubtful."""
    rows = frozenset(range(100))
    with ExitStack() as stack:
        link = stack.enter_context(opened(link_settings(url), lane=lane))
        _stage(link.staging(), an_attempt(), _messages(100))
        if when == "left by an earlier link":
            link.close()
            link = stack.enter_context(opened(link_settings(url), lane=lane))
            _comes_back(link.staging(), an_attempt(), 100)
        rabbit_node.lose_sight_of_consumers(url, _staging_of(lane))
        if when == "nacked":
            link.staging().commit(an_attempt(), rows)  # names what the queue took back already
        with pytest.raises(TargetUnavailable, match="redelivers unacked messages"):
            link.idle(30)
    with opened(link_settings(url), lane=lane) as link:
        staging = link.staging()
        _comes_back(staging, an_attempt(), 100)
        assert not staging.receipts()
        _commit(staging, an_attempt(), rows)


def test_what_was_discarded_may_be_given_out_again(
    url: str, rabbit_node: RabbitNode, link: RabbitLink, lane: int
) -> None:
    """Acknowledgements lost in a split bring back waste; it is thrown away once more."""
    staging = link.staging()
    _stage(staging, an_attempt(), _messages(5))
    rabbit_node.lose_sight_of_consumers(url, _staging_of(lane))
    staging.discard(an_attempt())
    _comes_back(staging, an_attempt(), 5)
    staging.discard(an_attempt())
    rows = _stage(staging, an_attempt(attempt=2), _messages(5))
    _commit(staging, an_attempt(attempt=2), rows)


def test_a_wire_cut_before_the_commit_brings_everything_back(
    fresh_url: str, proxy: PlaceProxy
) -> None:
    """After the consuming connection is cut, the next link is given the same attempt again."""
    line = proxy(fresh_url)
    with opened(link_settings(line.url(fresh_url))) as link:
        staging = link.staging()
        rows = _stage(staging, an_attempt(), _messages(100))
        line.cut()
        with pytest.raises(TargetUnavailable):
            await_staging(staging, lambda: False)
        calls: tuple[Callable[[], None], ...] = (
            lambda: staging.commit(an_attempt(), rows),
            lambda: staging.discard(an_attempt()),
            lambda: staging.publish(an_attempt(2), []),
        )
        for call in calls:
            with pytest.raises(TargetUnavailable):
                call()
    with opened(link_settings(fresh_url)) as link:
        staging = link.staging()
        assert await_staging(staging, lambda: _is_whole(staging, an_attempt(), 100))
        assert not any(_in_levels(fresh_url).values())


@pytest.mark.parametrize("count", [20, 29])
def test_a_nack_cut_at_any_byte_is_one_of_two_outcomes(
    fresh_url: str, proxy: PlaceProxy, count: int
) -> None:
    """A cut inside the nack leaves the whole attempt held; one behind it leaves it committed."""
    line = proxy(fresh_url)
    with opened(link_settings(line.url(fresh_url))) as link:
        staging = link.staging()
        rows = _stage(staging, an_attempt(), _messages(50))
        line.cut_after_bytes(count)
        staging.commit(an_attempt(), rows)
        with pytest.raises(TargetUnavailable):
            link.idle(30)
    is_committed = count >= 21  # a nack frame has 21 bytes
    with opened(link_settings(fresh_url)) as link:
        staging = link.staging()
        assert await_staging(
            staging,
            lambda: an_attempt() in staging.receipts() or _is_whole(staging, an_attempt(), 50),
        )
        assert (an_attempt() in staging.receipts()) == is_committed
        assert _is_whole(staging, an_attempt(), 50) != is_committed
    wait_until(lambda: sum(_in_levels(fresh_url).values()) == (50 if is_committed else 0))


def test_a_second_owner_is_refused_by_the_guard(url: str, link: RabbitLink, lane: int) -> None:
    """While one link is open, another of its lane is refused, whatever for; later it gets it."""
    refused = pytest.raises(TargetUnavailable, match=f"another process still owns lane {lane}")
    with refused, opened(link_settings(url), lane=lane, patience_s=0):
        pass
    with opened(link_settings(url), lane=lane + 1000) as other_lane:
        other_lane.staging()
    link.close()

    def is_free() -> bool:
        try:
            with opened(link_settings(url), lane=lane, patience_s=0) as third:
                third.staging()
        except TargetUnavailable:
            return False
        return True

    wait_until(is_free)


def test_a_refused_message_abandons_the_pass(vhost: Vhost, fresh_url: str) -> None:
    """When the staging queue does not take all of an attempt, publishing says so."""
    vhost.node.set_policy(vhost.name, "small", pattern="^migrator", max_length=5)
    with opened(link_settings(fresh_url), prefetch=1) as link:
        staging = link.staging()

        def publish_more() -> None:
            for attempt in range(1, 6):
                staging.publish(an_attempt(attempt=attempt), chunks(_messages(300)))

        with pytest.raises(TargetUnavailable, match="did not accept the whole attempt"):
            publish_more()


def test_whoever_touches_a_staging_queue_ends_the_link(url: str, lane: int) -> None:
    """It is bound again by the next link; used again if it is gone; not used if it is another."""
    name = _staging_of(lane)
    with opened(link_settings(url), lane=lane) as link, plain_channel(url) as channel:
        staging = link.staging()
        channel.queue_unbind(name, name, "")
        with pytest.raises(TargetUnavailable, match="no longer leads to a queue"):
            staging.publish(an_attempt(), chunks(_messages(3)))
    with opened(link_settings(url), lane=lane) as link, plain_channel(url) as channel:
        staging = link.staging()
        _stage(staging, an_attempt(attempt=2), _messages(3))
        channel.queue_delete(name)
        with pytest.raises(TargetUnavailable, match=r"ended the consumer of migrator\.staging"):
            await_staging(staging, lambda: False)
        channel.queue_declare(name, durable=True)
    with (
        opened(link_settings(url), lane=lane) as link,
        pytest.raises(EntityMismatch, match=rf"migrator\.staging\.abc123\.{lane}"),
    ):
        link.staging()


def test_entities_are_as_designed(vhost: Vhost, fresh_url: str) -> None:
    """Arguments of the lane's queues and the router's bindings are exactly those of the design."""
    with opened(link_settings(fresh_url)) as link:
        assert link.staging() is link.staging()
    queue = vhost.node.api("GET", f"queues/{vhost.name}/{_staging_of(0)}")
    assert queue["arguments"] == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "migrator.router.v2",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
        "x-delivery-limit": 100_000,
    }
    bindings = vhost.node.api(
        "GET", f"exchanges/{vhost.name}/{router_exchange(V2)}/bindings/source"
    )
    routes = {row["destination"]: row["arguments"] for row in bindings}
    header = "NServiceBus.Transport.RabbitMQ.ConfirmationId"
    expected: dict[str, dict[str, str]] = {
        level_name(V2, level): {"x-match": "all", header: str(level)} for level in range(28)
    }
    expected[_receipts_of(0)] = {"x-match": "all", header: f"receipt.{LEDGER}.0"}
    assert routes == expected


def test_a_memory_alarm_does_not_hold_up_a_commit(alarm_vhost: Vhost) -> None:
    """A nack is read during an alarm, because its connection never publishes."""
    create_delays(connection(alarm_vhost.amqp_url), V2)
    with opened(link_settings(alarm_vhost.amqp_url)) as link:
        rows = _stage(link.staging(), an_attempt(), _messages(20))
        alarm_vhost.node.set_memory_limit(10**6)
        assert "memory" in alarm_vhost.node.evaluate("rabbit_alarm:get_alarms().")
        _commit(link.staging(), an_attempt(), rows)
