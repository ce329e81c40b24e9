"""Every verb, under exactly the rights that `db grants` and `db grants --broker` print."""

from __future__ import annotations

import json
import re
import secrets
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy.engine import make_url

from dev.processes import wait_until
from migrator.delays.routing import DelaysVersion
from migrator.ledger.rights import Purpose
from tests.conftest import Vhost
from tests.e2e.arrivals import Receiver
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher
from tests.e2e.mariadb_rig import MariadbRig
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig
from tests.e2e.rows import nameless, row
from tests.e2e.test_delays_transfer import HONEST, Sent, publish

PASSWORD: Final = "pw"
DENIED: Final = re.compile(r"permission denied|command denied|lacks [A-Z]+ on")
SALES: Final = ("--endpoint", "Sales")
NAMED: Final = ("--destination", "Billing", "--destination", "Nowhere", "--destination", "Sales")
ONCE: Final = ("run", *SALES, "--once", "--cutoff", "0s")


def is_denied_only(told: str, args: Sequence[str]) -> bool:
    """Return whether nothing was denied but what a preview is there to find.

    All but who may make the levels are refused when they are compared with what they must be, which
    then is not checked.
    """
    if args[0] in ("preview", "delays"):
        return True
    refused = [line for line in told.splitlines() if "ACCESS_REFUSED" in line]
    return not DENIED.search(told) and all('"delay-entities"' in line for line in refused)


@dataclass(frozen=True, kw_only=True)
class Limited:
    """Users of a rig's database, one by purpose, and one of its broker, with what is printed."""

    rig: Rig
    vhost: Vhost
    users: Mapping[Purpose, str]
    broker_user: str

    def environment(self, purpose: Purpose) -> dict[str, Any]:
        """Return what has the program work as the user of *purpose*."""
        url = make_url(self.rig.database_url).set(username=self.users[purpose])
        node = self.vhost.node
        broker = node.amqp_url(self.vhost.name, user=self.broker_user, password=PASSWORD)
        ledger = "MIGRATOR_LEDGER__URL"
        return {
            ledger if ledger in self.rig.settings else "MIGRATOR_STORE__URL": (
                url.render_as_string(hide_password=False)
            ),
            "MIGRATOR_BROKER__URL": broker,
        }

    def run(self, purpose: Purpose, *args: str, codes: Sequence[int] = (0,), **more: Any) -> str:
        """Run a verb to its end; it may end with one of *codes*, and is denied nothing."""
        done = self.rig.run(*args, **{**self.environment(purpose), **more})
        told = done.stdout + done.stderr
        where = f"{purpose}: {args} ended {done.returncode}:\n{told[-3000:]}"
        assert done.returncode in codes, where
        assert is_denied_only(told, args), where
        return done.stdout


def execute(rig: Rig, *statements: str) -> None:
    """Execute statements as the owner of all."""
    if isinstance(rig, MariadbRig):
        with rig.cursor() as cursor:
            for each in statements:
                cursor.execute(each.replace("migrator.", "migrator_"))
        return
    with rig.sql() as connection:
        for each in statements:
            connection.execute(each.encode())


def printed(rig: Rig, user: str, purpose: Purpose) -> list[str]:
    """Return the statements that `db grants` prints for one purpose."""
    asked = rig.must("db", "grants", "--user", user, *SALES, "--for", purpose, "--json")
    return str(json.loads(asked)["sql"]).splitlines()


SENDING: Final = {"MIGRATOR_HANDOVER__NEAR_DUE": "dispatch"}


def permit(rig: Rig, vhost: Vhost, user: str, *asked: str, **settings: Any) -> None:
    """Give *user* the permissions that `db grants --broker` prints, and no others."""
    version = ("--rabbitmq", vhost.node.version)
    text = rig.must("db", "grants", "--broker", *version, *NAMED, *asked, "--json", **settings)
    found = json.loads(text)
    rights = {key: found[key] for key in ("configure", "write", "read")}
    vhost.node.set_permissions(vhost.name, user, **rights)


@contextmanager
def limited(
    rig: Rig, vhost: Vhost, *purposes: Purpose, asked: Sequence[str] = ()
) -> Iterator[Limited]:
    """Yield users who have what is printed for *purposes*, and nothing else.

    What is printed for the broker is what is *asked*, besides what a daemon needs.
    """
    tail = secrets.token_hex(4)
    users = {each: f"{each}-{tail}" for each in purposes}
    is_mariadb = isinstance(rig, MariadbRig)
    quote = "`" if is_mariadb else '"'
    node = vhost.node
    node.add_user(tail, PASSWORD)
    made = []
    try:
        for each, user in users.items():
            made.append(f"{quote}{user}{quote}")
            execute(rig, f"CREATE USER {made[-1]}", *printed(rig, user, each))
        permit(rig, vhost, tail, *asked)
        yield Limited(rig=rig, vhost=vhost, users=users, broker_user=tail)
    finally:
        rig.close()
        for name in made:
            execute(rig, *[f"DROP OWNED BY {name}"][is_mariadb:], f"DROP USER {name}")
        node.delete_user(tail)


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.slow)])
def either_rig(request: pytest.FixtureRequest) -> Rig:
    """A rig with either database."""
    name = "rig" if request.param == "postgresql" else "mariadb_rig"
    found: Rig = request.getfixturevalue(name)
    return found


MOVING: Final = tuple(each for each in Purpose if each is not Purpose.DISPATCH)


def prepare(rig: Rig) -> None:
    """Create everything, with settings that keep batches small; no API lends other rights."""
    rig.management_url = None
    rig.settings |= {"MIGRATOR_HANDOVER__BATCH_SIZE": "10"}
    rig.prepare()


LOOKS: Final = (
    "status",
    "quarantine list",
    "quarantine export",
    "delays show",
    "db resolve",
    "db upgrade --dry-run",
    "db adopt --dry-run --moved",
    "rollback --dry-run",
)
"""Verbs that a reader may run at any time."""


def half_way(us: Limited) -> None:
    """Have some rows handed over, in quarantine, parked, and in the hands of a dead process."""
    rig = us.rig
    rig.insert([row(-timedelta(days=1)), nameless("Nowhere"), row(timedelta(days=9 * 366))])
    rig.insert([row(headers={"NServiceBus.MessageId": "m" * 256}) for _ in range(2)])
    rig.insert([row() for _ in range(30)])
    us.run(Purpose.HAND_OVER, *ONCE, codes=(5,))
    rig.insert([row() for _ in range(30)])
    us.run(Purpose.HAND_OVER, *ONCE, codes=(-9,), fault="staged.confirmed:2")
    rig.create_receivers("Nowhere")


def test_every_verb_that_moves_or_looks(either_rig: Rig, vhost: Vhost, tmp_path: Path) -> None:
    """Each has what is printed for its purpose, and is denied nothing."""
    rig = either_rig
    prepare(rig)
    with limited(rig, vhost, *MOVING) as us:
        half_way(us)
        for args, codes in looks(rig):
            us.run(Purpose.READ, *args, codes=codes)
        us.run(Purpose.VERIFY, "verify", "--deep", "--evidence", str(tmp_path / "e"), codes=(5,))
        us.run(Purpose.HAND_OVER, *ONCE, codes=(5,))
        rig.insert([row() for _ in range(30)])
        us.run(Purpose.HAND_OVER, *ONCE, "--mode", "direct", codes=(5,))
        permit(rig, vhost, us.broker_user, **SENDING)
        rig.insert([row(timedelta(seconds=2)) for _ in range(3)])
        us.run(Purpose.HAND_OVER, *ONCE[:-1], "1m", codes=(5,), **SENDING)
        for args in by_hand(rig):
            us.run(Purpose.OPERATE, *args)
        rig.insert([row() for _ in range(30)])
        us.run(Purpose.HAND_OVER, *ONCE, codes=(-9,), fault="claim.done:2")
        us.run(Purpose.ROLLBACK, "rollback", "--yes")
        for how in ((), ("--moved",)):
            be_elsewhere(rig)
            us.run(Purpose.ADOPT, "db", "adopt", *how, "--yes")


def looks(rig: Rig) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Yield the verbs that only look, and how they end; a reader may not move rows."""
    yield ("preview", *SALES), (3,)
    yield ("preview", "--offline", *SALES), (3,)
    yield ("decommission", *SALES, "--dry-run"), (3,)
    yield ("quarantine", "show", min(rig.quarantined())), (0,)
    for text in LOOKS:
        yield text.split(), (0,)


def by_hand(rig: Rig) -> Iterator[Sequence[str]]:
    """Yield the verbs that change the ledger by hand; one batch is made doubtful."""
    one, other = sorted(rig.quarantined())
    yield "quarantine", "retry", "--id", one
    yield "quarantine", "discard", "--id", other, "--yes"
    doubtful = "state = 'doubtful', doubtful_at = claimed_at"
    ((batch,),) = rig.query("SELECT min(id) FROM migrator.batch")
    execute(rig, f"UPDATE migrator.batch SET {doubtful} WHERE id = {batch}")
    yield "db", "resolve", str(batch), "--as", "handed-over", "--yes"
    yield "db", "purge", "--older-than", "0s", "--yes"
    yield "delays", "probe", "--levels", "0"


def be_elsewhere(rig: Rig) -> None:
    """Have the ledger say that it was created in another database."""
    execute(rig, "UPDATE migrator.ledger SET identity = 'elsewhere:1:5'")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dispatch", "forward"])
def test_a_dispatcher(either_rig: Rig, vhost: Vhost, tmp_path: Path, mode: str) -> None:
    """It stores, clears, sends, retries, gives up and forgets; a forwarder also moves rows."""
    rig = either_rig
    rig.management_url = None
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(
        rig, tmp_path, mode=mode, dispatch={"remember": "1s", "retry_delays": ["1s"]}
    )
    rig.insert([row(timedelta(seconds=-5)), row(timedelta(seconds=2))])
    with limited(rig, vhost, Purpose.DISPATCH) as us:
        rig.settings |= us.environment(Purpose.DISPATCH)
        process = start_dispatcher(rig)
        saga = str(uuid.uuid4())
        with Receiver(rig.broker_url, "Billing", "Sales", "error") as receiver:
            endpoint.send(
                endpoint.deferred(3, to="Billing"),
                endpoint.deferred(0, to="Nowhere"),
                endpoint.saga_timeout(3600, saga_id=saga),
                endpoint.clear_timeouts(saga),
            )
            receiver.wait(lambda: len(receiver.arrivals) == 4)
        assert Counter(each.queue for each in receiver.arrivals) == {"Billing": 3, "error": 1}
        rows = "SELECT count(*) FROM migrator.timeout"
        wait_until(
            lambda: mode == "forward" or rig.query(rows) == [(0,)], seconds=90, what="a prune"
        )
        assert is_denied_only(rig.stop(process), ["run"])
        assert mode == "forward" or rig.query("SELECT count(*) FROM migrator.batch") == [(1,)]


def until_told(vhost: Vhost) -> None:
    """Wait until the management API has counts of all queues, which come late."""

    def are_told() -> bool:
        found = vhost.node.api("GET", f"queues/{vhost.name}")
        return all("effective_policy_definition" in each for each in found)

    wait_until(are_told, what="counts of all queues")


@pytest.mark.slow
def test_a_decommission(either_rig: Rig, vhost: Vhost) -> None:
    """It deletes queues and exchanges of the timeout manager, and what a daemon declared."""
    rig = either_rig
    rig.prepare("Billing")
    rig.insert([row()])
    rig.migrate()
    satellites = ("Sales.Timeouts", "Sales.TimeoutsDispatcher")
    rig.create_receivers("Sales", *satellites)
    asked = ("--for", "decommission", *SALES)
    with limited(rig, vhost, Purpose.OPERATE, asked=asked) as us:
        until_told(vhost)
        verb = ("decommission", *SALES, "--wait", "0s", "--give-up-recall", "--yes", "--json")
        done = json.loads(us.run(Purpose.OPERATE, *verb))
        assert done["done"]
        assert {*satellites} < {each["name"] for each in done["delete"]}


@pytest.mark.slow
def test_the_delays_from_their_creation_to_their_end(vhost: Vhost) -> None:
    """Created, moved into the other generation and to another broker, and deleted."""
    node, user = vhost.node, f"delays-{secrets.token_hex(4)}"
    there = Vhost(f"{vhost.name}-there", node)
    node.create_vhost(there.name)
    node.add_user(user, PASSWORD)
    here, target = (
        node.amqp_url(each.name, user=user, password=PASSWORD) for each in (vhost, there)
    )
    rig = Rig(database_url="", broker_url=here, management_url=node.management_url)
    by_guest = Rig(database_url="", broker_url=vhost.amqp_url)

    def do(verb: str, *options: str) -> dict[str, Any]:
        told = rig.run("delays", verb, *options, "--json")
        assert told.returncode == 0, told.stderr[-3000:]
        found: dict[str, Any] = json.loads(told.stdout)
        return found

    try:
        permit(rig, there, user, "--create-delays")
        rig.broker_url = target
        do("create")
        permit(rig, there, user)
        rig.broker_url = here
        for version in DelaysVersion:
            permit(rig, vhost, user, "--create-delays", "--delays", version)
            do("create", "--delays", version)
        for each in (vhost, there):
            Rig(database_url="", broker_url=each.amqp_url).create_receivers("Billing", "Sales")
        sent = [Sent(HONEST, name) for name in ("Billing", "Sales")]
        publish(by_guest, DelaysVersion.V1, sent)
        permit(rig, vhost, user, "--for", "delays-migrate")
        assert do("migrate", "--yes")["moved"] == len(sent)
        permit(rig, vhost, user, "--for", "delays-transfer")
        assert do("transfer", "--to-url", target, "--yes")["moved"] == len(sent)
        permit(rig, vhost, user, "--for", "delays-delete", "--delays", "v1")
        delete = ("delete", "--delays", "v1", "--even-if-bound")
        wait_until(  # the counts come late
            lambda: not rig.run("delays", *delete, "--dry-run").returncode, what="empty levels"
        )
        assert do(*delete, "--yes", "--settle", "1s")["deleted"]
    finally:
        node.delete_user(user)
        node.delete_vhost(there.name)
