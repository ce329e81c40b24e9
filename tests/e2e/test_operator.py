"""The way of an operator from the first look to the last: three endpoints, one of them not right.

Run as people run it: no option that a page does not tell, and each remedy is what the program
itself said before.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from dev.processes import free_port, wait_until
from tests.e2e.daemon import listen, listens
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.integration.test_page import text_of
from tests.unit.reports.reading import read

NAMES: Final = ("Sales", "Billing.Eu", "Shipping")
ALL: Final = tuple(chain.from_iterable(("--endpoint", name) for name in NAMES))
MAP: Final = ("--map", "Invoices=Audit")
HELD_S: Final = 60.0
"""Within which rows go on once their destination is there."""
SECRET: Final = "hunter2-hunter2-hunter2"
"""Of the page, and in wrong addresses; nothing that the program says may have it."""


@pytest.fixture
def sites(rig: Rig, tmp_path: Path) -> dict[str, Rig]:
    """Three endpoints with their rows; nothing of migrator's is there yet."""
    listen(rig, tmp_path)
    sites = {name: replace(rig, endpoint=name) for name in NAMES}
    for site in sites.values():
        site.create_store()
    rig.create_receivers("Audit", "Sales")
    overdue = row(timedelta(minutes=-5), destination="Audit")
    bad = replace(row(destination="Audit"), headers="{")
    rig.insert([overdue, bad, *(row(destination="Audit") for _ in range(60))])
    sites["Billing.Eu"].insert(
        row(timedelta(days=3, seconds=n), destination="Audit" if n % 3 else "Invoices")
        for n in range(6000)
    )
    rows = [
        *(row(destination="Audit") for _ in range(5)),
        *(row(destination="Nowhere") for _ in range(40)),
    ]
    sites["Shipping"].insert(rows)
    return sites


def says(text: str, *said: str) -> None:
    """Demand that *text* says all that, wherever its lines end."""
    print(text)
    words = " ".join(text.split())
    assert [each for each in said if each not in words] == []


def previews(rig: Rig, code: int, *said: str) -> None:
    """Demand that a preview of all three says all that, and fits on a terminal."""
    done = rig.run("preview", *ALL, *MAP)
    says(done.stdout, *said)
    assert done.returncode == code, done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 100] == []


def endpoints(rig: Rig) -> dict[str, Any]:
    """Return what status says of each endpoint."""
    found = json.loads(rig.must("status", "--json"))["endpoints"]
    return {each["endpoint"]: each for each in found}


def is_finished(rig: Rig, name: str, moved: int) -> bool:
    """Return whether nothing of an endpoint is left to move, and so many are moved."""
    each = endpoints(rig).get(name, {})
    return bool(each.get("state") == "finished" and each["handed_over"] == moved)


def shows(place: str) -> bool:
    """Return whether the page at *place* has all numbers, under a headline that is not green.

    It asks whoever comes for the token.
    """
    with httpx.Client(base_url=f"http://{place}", trust_env=False) as client:
        assert client.get("/").headers["location"] == "/page/login"
        login = {"token": SECRET, "name": "alice"}
        client.post("/page/login", data=login, headers={"origin": f"http://{place}"})
        page = client.get("/")
    text = text_of(page)
    print(text)
    headline = r"Running; 40 rows are parked for a destination; 1 row remains and has no sender "
    is_told = re.search(headline, text) is not None and 'class="verdict care"' in page.text
    left = "1 is left to the timeout manager (cutoff 1m): all overdue, and nothing consumes"
    dispatcher = "`Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    numbers = (
        *("6 065 of 6 106 moved", "1 still in the tables", "Sales unreadable-headers 1 1"),
        *("Sales migrate:", "60 handed over 1 in quarantine 1 in the table"),
        f"finished Done: 60 moved, 1 in quarantine. {left} {dispatcher}",
        *("finished Done: 6 000 moved. Pause…", "Takes no messages: Nowhere"),
        *("Billing.Eu migrate:", "6 000 handed over 0 in the table"),
        *("Shipping migrate:", "5 handed over 40 parked 0 in the table", "Nowhere of Shipping"),
    )
    return is_told and all(each in text for each in numbers)


def test_from_the_first_look_to_the_last(rig: Rig, sites: dict[str, Rig], tmp_path: Path) -> None:
    """Preview, create what is missing, run, finish, mend, finish again, verify, roll back."""
    before = {name: site.stored() for name, site in sites.items()}
    missing = ("migrator delays create --delays v2", "→ migrator db upgrade")
    previews(rig, 3, "A run would be refused for", "6 107 timeouts of 3 endpoints", *missing)
    says(rig.run("db", "upgrade").stderr, "the ledger has version")
    made = [json.loads(rig.must("delays", "create", "--json")) for _ in range(2)]
    assert [(each["created"], each["existed"]) for each in made] == [(57, 0), (0, 57)]
    rig.must("db", "grants", "--user", "anybody", "--endpoint", "Sales", "--json")
    counts = "6 065 would be moved; 1 due too soon to be moved; 40 would wait for a destination"
    lacking = "Nowhere: it has no queue: 40 rows will wait in the ledger"
    previews(rig, 0, counts, "1 would go to quarantine", lacking, "unreadable-headers")
    report = tmp_path / "report.html"
    rig.must("preview", *ALL, *MAP, "--exact", "--format", "html", "--output", str(report))
    page = read(report.read_text())
    waits = "40 would wait for a destination that cannot be reached"
    says(page.text, f"6 065 timeouts can be moved, {waits}, 1 would go to quarantine")
    says(page.text, "6 107 stored now", "6 065 can be moved")
    stored = {"Sales": [62], "Billing.Eu": [6000], "Shipping": [45]}
    assert page.table("Stored timeouts of each endpoint") == {"endpoint": ["number"], **stored}
    assert {name: site.stored() for name, site in sites.items()} == before

    page_of = {"MIGRATOR_WEB__LISTEN": f"127.0.0.1:{free_port()}", "MIGRATOR_WEB__TOKEN": SECRET}
    daemon = rig.start("run", *ALL, *MAP, **page_of)
    wait_until(lambda: listens(rig), what="a daemon that listens")
    wait_until(lambda: is_finished(rig, "Billing.Eu", 6000), what="an endpoint that is finished")
    wait_until(lambda: is_finished(rig, "Sales", 60), what="another one")
    left = "1 is left to the timeout manager (cutoff 1m): all overdue, and nothing consumes"
    dispatcher = "`Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    says(
        rig.must("status"),
        "Billing.Eu: Done: 6 000 moved.",
        "Sales: Done: 60 moved, 1 in",
        left,
        dispatcher,
    )
    shipping = endpoints(rig)["Shipping"]
    assert (shipping["state"], shipping["in_store"], shipping["parked"]) == ("waiting", 0, 40)
    assert (shipping["quarantined"], shipping["held_destinations"]) == (0, 1)
    wait_until(lambda: shows(page_of["MIGRATOR_WEB__LISTEN"]), what="the page with all numbers")
    assert [text for wrong in WRONG_FOR_A_DAEMON if (text := answers(rig, wrong, {}))] == []

    began = time.monotonic()
    rig.create_receivers("Nowhere")
    wait_until(lambda: is_finished(rig, "Shipping", 45), what="rows that go on", seconds=HELD_S)
    print(f"they went on within {time.monotonic() - began:.0f} s")
    sites["Billing.Eu"].insert([row(destination="Audit")])
    wait_until(lambda: is_finished(rig, "Billing.Eu", 6001), what="a new row that is moved, too")

    says(rig.must("quarantine", "list"), "unreadable-headers")
    rig.must("quarantine", "discard", "--reason", "unreadable-headers", "--yes")
    assert endpoints(rig)["Sales"]["quarantined"] == 0
    assert SECRET not in rig.stop(daemon)

    # MAP was given to the run alone, and is remembered with what it handed over
    assert "Invoices" not in rig.must("delays", "show", "--json")
    rig.must("verify", "--deep", "--format", "html", "--output", str(report))
    page = read(report.read_text())
    headline = ("Verified: every timeout is accounted for", "6 107 claimed", "0 do not agree")
    says(page.text, *headline, "6 106 must be waiting at the broker")
    claimed = {"Sales": [61], "Billing.Eu": [6001], "Shipping": [45]}
    assert page.table("Every timeout that was ever claimed") == {"endpoint": ["number"], **claimed}
    verified = json.loads(rig.must("verify", "--deep", "--json"))
    assert (verified["verdict"], verified["counts"]) == ("balanced", {})
    assert {each["endpoint"]: each["handed_over"] for each in verified["endpoints"]} == {
        "Sales": 60,
        "Billing.Eu": 6001,
        "Shipping": 45,
    }
    refused = rig.run("decommission", "--endpoint", "Sales", "--yes")
    assert refused.returncode == 3
    says(refused.stderr, "rows_in_table")
    assert "DROP" not in refused.stdout + refused.stderr
    rig.must("rollback", "--yes")
    after = {name: site.stored() for name, site in sites.items()}
    new = after["Billing.Eu"].keys() - before["Billing.Eu"].keys()
    assert len(new) == 1
    assert len(before["Sales"].keys() - after["Sales"].keys()) == 1  # the one that was discarded
    for name in NAMES:
        both = before[name].keys() & after[name].keys()
        assert {key: after[name][key] for key in both} == {key: before[name][key] for key in both}
    told = [(each["handed_over"], each["in_flight"]) for each in endpoints(rig).values()]
    assert told == [(0, 0)] * len(NAMES)
    assert rig.drain_levels() == []


class Wrong(NamedTuple):
    """What somebody types by mistake, what has to be said of it, and what the environment has."""

    line: str
    code: int
    said: str
    environment: Mapping[str, str] = {}


WRONG_FOR_A_DAEMON: Final = (  # while one runs
    Wrong("pause --endpoint Nobody", 3, "works on: Billing.Eu, Sales, Shipping"),
    Wrong("set batch_size 0", 3, "batch_size cannot be '0'"),
    Wrong("set rate_limit fast", 3, "rate_limit cannot be 'fast'"),
    Wrong("run --endpoint Sales", 2, "control.sock"),
)
WRONG: Final = (
    # verbs, options and their values
    Wrong("stat", 2, "Did you mean 'status'?"),
    Wrong("quarantine shw", 2, "Did you mean 'show'?"),
    Wrong("run", 2, "--endpoint"),
    Wrong("run --endpoint Sales --bogus", 2, "No such option: --bogus"),
    Wrong("run --endpoint Sales --batch-size 0", 2, "No such option: --batch-size"),
    Wrong("run --endpoint Sales --all-endpoints", 2, "exclude each other"),
    Wrong("run --endpoint Sales --cutoff 1x", 2, "must be a duration such as 250ms, 30s"),
    Wrong("run --endpoint Sales --cutoff -1m", 2, "handover.cutoff = '-1m' (option --cutoff)"),
    Wrong("run --endpoint Sales --cutoff 1m --cutoff 2m", 2, "--cutoff takes one value"),
    Wrong("run --endpoint Sales --mode fast", 2, "must be staged or direct"),
    Wrong("run --endpoint Sales --lanes 0", 2, "must be greater than or equal to 1"),
    Wrong("run --endpoint Sales --map Billing", 2, "--map 'Billing' must be of the form old=new"),
    Wrong("preview --format xml", 2, "must be table or html; --json writes JSON"),
    Wrong("preview --output {folder}/absent/plan.html", 2, "there is no folder {folder}/absent"),
    Wrong("verify --json --format html", 2, "--json and --format html exclude each other"),
    Wrong("verify --max-hold soon --deep", 2, "--max-hold"),
    Wrong("set handover.rate_limit=fast", 2, "is not one of 'batch_size', 'rate_limit', 'pace'"),
    Wrong("delays create --delays v3", 2, "broker.delays = 'v3' (option --delays): must be v1 or"),
    Wrong("delays probe --levels 99", 2, "must be levels from 0 to 27"),
    Wrong("db grants", 2, "give --user NAME for the database, or --broker"),
    Wrong("db resolve 99 --as lost --yes", 2, "must be handed-over, claimed, quarantined"),
    Wrong("decommission --endpoint Sales --endpoint Shipping", 2, "--endpoint takes one value"),
    # what is not there
    Wrong("run --endpoint Sale", 3, "no endpoint 'Sale'; it has: Billing_Eu, Sales, Shipping"),
    Wrong("rollback --endpoint Sale --yes", 3, "no endpoint 'Sale'; it has: Billing_Eu, Sales"),
    Wrong("pause --endpoint Sales", 4, "no daemon listens on {folder}/control.sock"),
    Wrong("quarantine show", 2, "Missing argument 'ID'"),
    Wrong("quarantine show 99", 2, "no timeout '99' is in quarantine"),
    Wrong("quarantine list --reason ugly", 2, "must be one of unreadable-headers, no-destination"),
    # what somebody has to confirm, or is refused
    Wrong("rollback --endpoint Sales", 2, "add --yes to do it. Nothing was changed"),
    Wrong("quarantine discard", 2, "add --yes to do it. Nothing was changed"),
    Wrong("delays delete", 2, "for every endpoint; add --yes to do it. Nothing was changed"),
    Wrong("seed --endpoint Sales", 2, "--yes"),
    Wrong("seed --endpoint Sales --yes", 3, "has timeouts that seed did not write"),
    Wrong("decommission --endpoint Sales", 2, "timeout manager is switched off"),
    Wrong("decommission --endpoint Sales --yes", 3, "still holds 62 rows; migrate them"),
    Wrong("rollback --keep-handed-over --destination Audit --yes", 2, "nothing would be left to"),
    # settings
    Wrong("config --config nowhere.toml", 2, "nowhere.toml cannot be read: No such file"),
    Wrong("config --config {folder}", 2, "{folder} cannot be read: Is a directory"),
    Wrong("config --config {folder}/broken.toml", 2, "broken.toml is not TOML: expected ']'"),
    Wrong("config --config {folder}/key.toml", 2, "unknown key; did you mean handover.cutoff?"),
    Wrong("config --config {folder}/type.toml", 2, "handover.lanes = 'two' (file {folder}/type"),
    Wrong("config", 2, "must be a valid integer", {"MIGRATOR_HANDOVER__LANES": "many"}),
    Wrong("config", 2, "(env MIGRATOR_HANDOVER__BATCH", {"MIGRATOR_HANDOVER__BATCH_SIZE": "0"}),
    Wrong("config", 2, "did you mean MIGRATOR_HANDOVER__L", {"MIGRATOR_HANDOVR__LANES": "2"}),
    Wrong("config", 2, "must be a loopback address", {"MIGRATOR_WEB__LISTEN": "0.0.0.0:9464"}),
    Wrong("config --broker-url-file {folder}/absent", 2, "{folder}/absent cannot be read"),
    Wrong("config --broker-url-file {open}", 2, "every user of this machine can read {open}: ch"),
    # addresses
    Wrong("status --store-url postgresql://u:{secret}@127.0.0.1:1/x", 4, "cannot be reached"),
    Wrong("status --store-url {server}/no-such-database", 4, '"no-such-database" does not exist'),
    Wrong("status --store-url informix://u:{secret}@db/x", 2, "informix is not supported"),
    Wrong("delays create --broker-url amqp://u:{secret}@127.0.0.1:1", 4, "cannot be reached"),
    Wrong("delays create --broker-url amqp://guest:{secret}@{node}", 4, "refused user 'guest'"),
    Wrong("delays create --broker-url amqp://{node}/absent", 4, "no virtual host 'absent'"),
    Wrong("delays create --broker-url http://u:{secret}@{node}", 2, "start with amqp:// or amqps"),
)


@pytest.fixture
def places(rig: Rig, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What wrong inputs name: files that are not right, servers, and a secret."""
    for name, text in (
        ("broken", "[store"),
        ("key", "[handover]\ncutof = '1m'"),
        ("type", "[handover]\nlanes = 'two'"),
    ):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    with tempfile.NamedTemporaryFile("w", dir="/var/tmp") as file:  # where all may come
        file.write(f"amqp://guest:{SECRET}@127.0.0.1")
        file.flush()
        Path(file.name).chmod(0o644)
        yield {
            "folder": str(tmp_path),
            "open": file.name,
            "secret": SECRET,
            "server": rig.database_url.rpartition("/")[0],
            "node": rig.broker_url.rpartition("@")[2].partition("/")[0],
        }


def answers(rig: Rig, wrong: Wrong, places: Mapping[str, str]) -> str:
    """Return what is not right about the answer to *wrong*; empty: all is."""
    more: dict[str, Any] = {n: text.format(**places) for n, text in wrong.environment.items()}
    done = rig.run(*shlex.split(wrong.line.format(**places)), **more)
    told = " ".join((done.stdout + done.stderr).split())
    is_right = done.returncode == wrong.code and wrong.said.format(**places) in told
    is_clean = "Traceback" not in told and SECRET not in told and done.stdout == ""
    return "" if is_right and is_clean else f"{wrong.line} {more}: {done.returncode} {told}"


def test_wrong_inputs_get_one_clear_answer(
    rig: Rig, sites: dict[str, Rig], places: dict[str, str]
) -> None:
    """With its exit code, what is true and what to do; nothing is claimed by any of them."""
    rig.create_ledger()
    before = {name: site.stored() for name, site in sites.items()}
    assert [text for wrong in WRONG if (text := answers(rig, wrong, places))] == []
    assert {name: site.stored() for name, site in sites.items()} == before
