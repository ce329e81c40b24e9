"""The real program and a broker of several nodes: it goes on with the next one by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from dev.processes import free_port
from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.support.proxy import Proxy

PlaceProxy = Callable[[str], Proxy]
ROWS = 600


def test_a_daemon_goes_on_with_the_next_node(rig: Rig, vhost: Vhost, proxy: PlaceProxy) -> None:
    """Its node goes away in the middle: all arrives once, and log and status name the other."""
    rig.prepare()
    rows = [row() for _ in range(ROWS)]
    rig.insert(rows)
    first, second = proxy(vhost.amqp_url), proxy(vhost.amqp_url)
    urls = [line.url(vhost.amqp_url) for line in (first, second)]
    managed = f"http://127.0.0.1:{free_port()},{vhost.node.management_url}"
    daemon = rig.start(
        *("run", "--endpoint", "Sales"),
        MIGRATOR_BROKER__URL=",".join(urls),
        MIGRATOR_BROKER__MANAGEMENT_URL=managed,
        MIGRATOR_HANDOVER__BATCH_SIZE="50",
        MIGRATOR_HANDOVER__RATE_LIMIT="150",
    )
    wait_until(partial(rig.has_handed_over, 3), what="handing over")
    first.refuse()
    first.cut()
    wait_until(rig.is_done, what="the last receipt")
    # the ledger is told at the next renewal of the lease
    wait_until(lambda: f"(at 127.0.0.1:{second.port})" in rig.doing(), what="the other node")
    said = rig.stop(daemon)
    nodes = [json.loads(line) for line in said.splitlines() if '"broker_node"' in line]
    assert {each["node"] for each in nodes} == {f"127.0.0.1:{p.port}" for p in (first, second)}
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated) == ((), ())
