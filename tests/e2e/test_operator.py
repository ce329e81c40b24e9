"""The way of an operator from the first look to the last: three endpoints, one of them not right.

Run as people run it: no option that a page does not tell, and each remedy is what the program
itself said before.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from dev.processes import wait_until
from tests.e2e.daemon import listen, listens
from tests.e2e.rig import Rig
from tests.e2e.rows import row

NAMES: Final = ("Sales", "Billing.Eu", "Shipping")
ALL: Final = tuple(chain.from_iterable(("--endpoint", name) for name in NAMES))
HELD_S: Final = 60.0
"""Within which rows go on once their destination is there."""


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
    sites["Billing.Eu"].insert([row(destination="Audit") for _ in range(30)])
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
    done = rig.run("preview", *ALL)
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


def test_from_the_first_look_to_the_last(rig: Rig, sites: dict[str, Rig]) -> None:
    """Preview, create what is missing, run, finish, mend, finish again, verify, roll back."""
    before = {name: site.stored() for name, site in sites.items()}
    missing = ("migrator delays create --delays v2", "→ migrator db upgrade")
    previews(rig, 3, "A run would be refused for", "137 timeouts of 3 endpoints", *missing)
    says(rig.run("db", "upgrade").stderr, "the ledger has version")
    made = [json.loads(rig.must("delays", "create", "--json")) for _ in range(2)]
    assert [(each["created"], each["existed"]) for each in made] == [(57, 0), (0, 57)]
    rig.must("db", "grants", "--user", "anybody", "--endpoint", "Sales", "--json")
    counts = "95 would be moved; 1 due too soon to be moved; 40 would wait for a destination"
    lacking = "Nowhere: it has no queue: 40 rows will stay in the store"
    previews(rig, 0, counts, "1 would go to quarantine", lacking, "unreadable-headers")
    assert {name: site.stored() for name, site in sites.items()} == before

    daemon = rig.start("run", *ALL)
    wait_until(lambda: listens(rig), what="a daemon that listens")
    wait_until(lambda: is_finished(rig, "Billing.Eu", 30), what="an endpoint that is finished")
    wait_until(lambda: is_finished(rig, "Sales", 60), what="another one")
    left = "1 is left to the timeout manager (cutoff 1m): all overdue, and nothing consumes"
    dispatcher = "`Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    says(
        rig.must("status"),
        "Billing.Eu: Done: 30 moved.",
        "Sales: Done: 60 moved, 1 in",
        left,
        dispatcher,
    )
    shipping = endpoints(rig)["Shipping"]
    assert (shipping["state"], shipping["in_store"]) == ("waiting", 40)
    assert (shipping["quarantined"], shipping["held_destinations"]) == (0, 1)

    began = time.monotonic()
    rig.create_receivers("Nowhere")
    wait_until(lambda: is_finished(rig, "Shipping", 45), what="rows that go on", seconds=HELD_S)
    print(f"they went on within {time.monotonic() - began:.0f} s")
    sites["Billing.Eu"].insert([row(destination="Audit")])
    wait_until(lambda: is_finished(rig, "Billing.Eu", 31), what="a new row that is moved, too")

    says(rig.must("quarantine", "list"), "unreadable-headers")
    rig.must("quarantine", "discard", "--reason", "unreadable-headers", "--yes")
    assert endpoints(rig)["Sales"]["quarantined"] == 0
    rig.stop(daemon)

    verified = json.loads(rig.must("verify", "--deep", "--json"))
    assert (verified["verdict"], verified["counts"]) == ("balanced", {})
    assert {each["endpoint"]: each["handed_over"] for each in verified["endpoints"]} == {
        "Sales": 60,
        "Billing.Eu": 31,
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


WRONG: Final = {
    ("stat",): (2, "Did you mean 'status'?"),
    ("run", "--endpoint", "Sale"): (3, "no endpoint 'Sale'; it has: Billing_Eu, Sales, Shipping"),
    ("run", "--endpoint", "Sales", "--cutoff", "1x"): (2, "must be a duration such as 250ms, 30s"),
    ("run",): (2, "--endpoint"),
    ("pause", "--endpoint", "Sales"): (4, "no daemon"),
    ("rollback", "--endpoint", "Sales"): (2, "add --yes to do it. Nothing was changed"),
    ("rollback", *ALL): (2, "add --yes to do it. Nothing was changed"),
    ("decommission", *ALL): (2, "--endpoint takes one value"),
    ("quarantine", "show"): (2, "Missing argument 'ID'"),
    ("quarantine", "show", "99"): (2, "no timeout '99' is in quarantine"),
    ("set", "handover.rate_limit=fast"): (2, "rate_limit"),
    ("delays", "create", "--delays", "v3"): (2, "v3"),
    ("verify", "--max-hold", "soon", "--deep"): (2, "--max-hold"),
    ("seed", "--endpoint", "Sales"): (2, "--yes"),
    ("config", "--config", "nowhere.toml"): (2, "nowhere.toml"),
}


def test_wrong_inputs_get_one_clear_answer(rig: Rig, sites: dict[str, Rig]) -> None:
    """With its exit code, what is true and what to do; nothing is claimed by any of them."""
    rig.create_ledger()
    before = {name: site.stored() for name, site in sites.items()}
    found = {args: rig.run(*args) for args in WRONG}
    told = {args: (done.returncode, done.stderr) for args, done in found.items()}
    wrong = {
        args: told[args]
        for args, (code, said) in WRONG.items()
        if told[args][0] != code or said not in told[args][1] or "Traceback" in told[args][1]
    }
    assert wrong == {}
    assert {name: site.stored() for name, site in sites.items()} == before
