"""From the endpoint's own timeout manager to migrator and back: nobody misses anything."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pika
import pytest
from psycopg import sql

from dev.processes import PATIENCE_S
from dev.servers import wait_until
from migrator.nservicebus.headers import parse_headers
from migrator.nservicebus.wiretime import build_wire_time
from tests.e2e.arrivals import Receiver, books
from tests.e2e.dispatching import prepare_dispatcher, settings_text, start_dispatcher, waiting
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig
from tests.e2e.rows import row

pytestmark = pytest.mark.punctual


class OldTimeoutManager:
    """The original, in a few lines: reference ``timeout-manager.md`` sections 8 to 10."""

    def __init__(self, rig: Rig, endpoint: OldEndpoint) -> None:
        """Work on the table and the queues of *endpoint*."""
        self._rig = rig
        self._endpoint = endpoint

    def poll(self) -> list[str]:
        """Send a control message for each row that is due; return their ids."""
        query = sql.SQL('SELECT "Id" FROM {} WHERE "Time" <= %s ORDER BY "Time"')
        with self._rig.sql() as connection:
            now = datetime.now(UTC).replace(tzinfo=None)
            found = connection.execute(query.format(self._rig.table), (now,))
            ids = [str(each) for (each,) in found]
        if ids:
            self._endpoint.send(*(self._endpoint.control(each) for each in ids))
        return ids

    def dispatch(self) -> int:
        """Serve the control messages that wait; return how many rows were sent."""
        sent = 0
        with self._rig.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while True:
                method, control, _ = channel.basic_get(self._endpoint.dispatcher)
                if method is None:
                    return sent
                sent += self._serve(channel, control)
                channel.basic_ack(method.delivery_tag)

    def _serve(self, channel: pika.adapters.blocking_connection.BlockingChannel,
               control: pika.BasicProperties) -> bool:  # fmt: skip
        """Peek, send, remove."""
        timeout_id = control.headers["Timeout.Id"]
        table = self._rig.table
        with self._rig.sql() as connection:
            peek = sql.SQL('SELECT "Destination", "State", "Headers" FROM {} WHERE "Id" = %s')
            found = connection.execute(peek.format(table), (timeout_id,)).fetchone()
            if found is None:
                return False
            destination, body, text = found
            headers = dict(parse_headers(text))
            headers["NServiceBus.TimeSent"] = build_wire_time(datetime.now(UTC))
            headers["NServiceBus.RelatedToTimeoutId"] = timeout_id
            properties = pika.BasicProperties(
                message_id=control.message_id,
                correlation_id=headers["NServiceBus.CorrelationId"],
                content_type=headers["NServiceBus.ContentType"],
                delivery_mode=2,
                headers=headers,
            )
            exchange, key = self._endpoint.address_of(destination)
            channel.basic_publish(exchange, key, body, properties, mandatory=True)
            remove = sql.SQL('DELETE FROM {} WHERE "Id" = %s').format(table)
            assert connection.execute(remove, (timeout_id,)).rowcount == 1
        return True


@pytest.mark.slow
def test_there_and_back_between_two_timeout_managers(rig: Rig, tmp_path: Path) -> None:
    """Stopped in good order, all that is not due is in the table as it was; the original goes on.

    And the other way round: control messages that the original left behind are served.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    original = OldTimeoutManager(rig, endpoint)
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing") as receiver:
        theirs = [endpoint.deferred(12 + n / 50, to="Billing") for n in range(20)]
        theirs += [endpoint.saga_timeout(12, saga_id=str(uuid.uuid4())) for _ in range(5)]
        endpoint.send(*theirs)
        wait_until(lambda: len(rig.stored()) == 25, what="storing")
        before = rig.stored()
        ours = [endpoint.deferred(1.5, to="Billing") for _ in range(10)]
        endpoint.send(*ours)
        receiver.wait_for(*ours)
        rig.stop(process)
        assert rig.stored() == before
        assert waiting(rig, endpoint.timeouts) == waiting(rig, endpoint.dispatcher) == 0
        sent = 0
        deadline = time.monotonic() + PATIENCE_S
        while sent < 20 and time.monotonic() < deadline:
            original.poll()
            sent += original.dispatch()
            time.sleep(0.2)
        original.poll()  # and dies before it serves what is left
        left = len(rig.stored())
        process = start_dispatcher(rig)
        receiver.wait_for(*theirs)
        wait_until(lambda: waiting(rig, endpoint.dispatcher) == 0, what="served")
        rig.stop(process)
    account = books([*ours, *theirs], receiver.arrivals)
    print(f"{sent} sent by the original, {left} left to us: {account}")
    assert (account.lost, account.duplicated, account.foreign, account.early) == ((), (), (), ())
    assert rig.stored() == {}


def test_control_messages_are_served(rig: Rig, tmp_path: Path) -> None:
    """A due row is sent once; a row that is not there, or not due yet, is none of their business.

    The row that is not due stays, untouched, and is sent when it is.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"poll_interval": "1m"})
    rig.insert([row(timedelta(seconds=-60), destination="Billing")])
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Billing") as receiver:
        receiver.wait(lambda: len(receiver.arrivals) == 1)  # it has polled, and waits for a minute
        receiver.arrivals.clear()
        overdue = [row(timedelta(seconds=-60), destination="Billing") for _ in range(3)]
        later = row(timedelta(seconds=8), destination="Billing")
        rig.insert([*overdue, later])
        endpoint.core = 5
        endpoint.send(endpoint.control(str(overdue[0].id)))
        endpoint.core = 7
        endpoint.send(
            endpoint.control(str(overdue[1].id).upper()),  # as SQL Server writes them
            endpoint.control(str(overdue[1].id)),
            endpoint.control(str(uuid.uuid4())),
            endpoint.control(str(later.id)),
        )
        receiver.wait(lambda: len(receiver.arrivals) >= 2)
        wait_until(lambda: waiting(rig, endpoint.dispatcher) == 0, what="all served")
        time.sleep(0.5)
        found = [each.headers["NServiceBus.RelatedToTimeoutId"] for each in receiver.arrivals]
        assert sorted(found) == sorted(str(each.id) for each in overdue[:2])
        assert rig.stored_ids() == {overdue[2].id, later.id}
        rig.stop(process)
        assert waiting(rig, endpoint.dispatcher) == 0  # acknowledged, all of them
        assert rig.config is not None
        rig.config.write_text(settings_text("Sales"))
        process = start_dispatcher(rig)
        ready_at = datetime.now(UTC)
        receiver.wait(lambda: len(receiver.arrivals) >= 4)
        rig.stop(process)
    last = receiver.arrivals[-1]
    assert last.headers["NServiceBus.RelatedToTimeoutId"] == later.id
    assert last.at >= later.due_at
    assert last.at - max(later.due_at, ready_at) < timedelta(seconds=5)
    assert (len(receiver.arrivals), rig.stored_ids()) == (4, set())
