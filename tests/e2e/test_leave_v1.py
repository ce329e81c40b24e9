"""From the delays v1 on RabbitMQ 3.10 to 4.3 by way of v2, while messages wait."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, delivery_exchange
from tests.conftest import Vhost
from tests.e2e.arrivals import Receiver
from tests.e2e.rig import Rig
from tests.e2e.rows import chance
from tests.e2e.test_delays_transfer import (
    DAY_S,
    KINDS,
    MARGIN,
    Sent,
    all_levels,
    due_by_headers,
    due_by_key,
    publish,
    take,
)
from tests.support import cannot_run

V1, V2 = DelaysVersion.V1, DelaysVersion.V2
ROOT: Final = Path(__file__).resolve().parents[2] / ".roots" / "sid"
RECEIVERS: Final = ("Billing", "Acme.Billing.Invoices")


@pytest.fixture
def newest() -> Iterator[RabbitNode]:
    """A node of RabbitMQ 4.3, as dev/unpack has it."""
    if not (ROOT / "usr").is_dir():
        cannot_run("RabbitMQ 4.3 is not there: dev/unpack sid rabbitmq-server")
    with RabbitNode(root=ROOT) as node:
        yield node


def _rig(url: str, management_url: str, *versions: DelaysVersion) -> Rig:
    """Return a system without a store, whose endpoints have quorum queues, bound as by v7."""
    rig = Rig(database_url="sqlite:///nowhere.db", broker_url=url, management_url=management_url)
    with rig.amqp() as client:
        channel = client.channel()
        for name in RECEIVERS:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        for rig.delays in versions:
            rig.create_levels()
            for name in RECEIVERS:
                channel.queue_bind(name, delivery_exchange(rig.delays), f"#.{name}")
    return rig


def _done(rig: Rig, *args: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.must("delays", *args, "--json", codes=(code,)))
    return found


def _classic_queues(vhost: Vhost) -> list[str]:
    told = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}?columns=name,type")
    return [each["name"] for each in told if each["type"] == "classic"]


@pytest.mark.parametrize(
    ("count", "latest_s"),
    [
        pytest.param(200, 16, marks=pytest.mark.slow),
        pytest.param(10_000, 150, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_v1_to_v2_to_deleted_to_another_broker(
    vhost: Vhost, newest: RabbitNode, count: int, latest_s: int
) -> None:
    """Each message arrives once, on one broker or the other, and none early; no level is left."""
    old = _rig(vhost.amqp_url, vhost.node.management_url, V1, V2)
    new = _rig(newest.amqp_url(), newest.management_url, V2)
    dice = chance(count)
    sent = [
        Sent(dice.choice(KINDS), dice.choice(RECEIVERS), delay_s)
        for delay_s in [dice.randrange(2, latest_s) for _ in range(count // 10)]
        + [dice.randrange(DAY_S, 200 * DAY_S) for _ in range(count - count // 10)]
    ]
    soon, far = sent[: count // 10], sent[count // 10 :]
    with (
        Receiver(old.broker_url, *RECEIVERS) as here,
        Receiver(new.broker_url, *RECEIVERS) as there,
    ):
        publish(old, V1, [*far, *soon])
        assert len(_classic_queues(vhost)) == 28
        assert _done(old, "delete", "--delays", "v1", "--yes", code=3)["deleted"] is False
        while (done := _done(old, "migrate", "--yes"))["moved"]:
            assert done["left"] == 0
        delete = ("delete", "--delays", "v1", "--even-if-bound")
        wait_until(  # the counts come late
            lambda: (
                not json.loads(old.must("delays", *delete, "--dry-run", "--json", codes=(0, 3)))[
                    "obstacles"
                ]
            ),
            what="empty levels",
        )
        assert _done(old, *delete, "--yes", "--settle", "1s")["deleted"]
        assert _classic_queues(vhost) == []
        while _done(old, "transfer", "--to-url", new.broker_url, "--yes")["moved"]:
            pass
        wait_until(
            lambda: len(here.arrivals) + len(there.arrivals) >= len(soon),
            seconds=300,  # what has a lying header may be late by the time of its level
            what="those due soon",
        )
    arrived = [*here.arrivals, *there.arrivals]
    waiting = take(new.broker_url, *all_levels(V2), count=len(far))
    print(
        f"{count} sent: {len(here.arrivals)} arrived on 3.10, {len(there.arrivals)} on 4.3,"
        f" {len(waiting)} wait there"
    )
    ids = Counter(str(each.properties.message_id) for each in [*arrived, *waiting])
    assert ids == Counter(each.id for each in sent)
    due_at = {each.id: each.due_at - MARGIN for each in sent}
    assert all(each.at >= due_at[str(each.properties.message_id)] for each in arrived)
    for each in waiting:
        at = due_at[str(each.properties.message_id)]
        assert min(due_by_key(each), due_by_headers(each)) >= at
    assert take(old.broker_url, *all_levels(V2)) == []
