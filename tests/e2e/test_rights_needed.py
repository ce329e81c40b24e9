"""Each right that `db grants` prints is needed: without it, a verb of its purpose is denied."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from migrator.ledger.rights import Purpose
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import nameless, row
from tests.e2e.test_rights import (
    DENIED,
    LOOKS,
    ONCE,
    SALES,
    Limited,
    by_hand,
    execute,
    limited,
    prepare,
    printed,
)

_GRANT: Final = re.compile(r"GRANT (.+) ON (.+) TO (.+);")
_EMPTY: Final = "TRUNCATE {}".format(
    ", ".join(
        f"migrator.{each}"
        for each in ("timeout", "batch", "run", "event", "lease", "held_destination")
    )
)
Verb = tuple[Sequence[str], dict[str, Any]]


@dataclass(frozen=True, order=True)
class Right:
    """One right on one table, sequence or schema."""

    on: str
    what: str


def rights(rig: Rig, purpose: Purpose) -> set[Right]:
    """Return what is printed for one purpose, right by right."""
    found = [_GRANT.fullmatch(line) for line in printed(rig, "someone", purpose)]
    return {
        Right(each[2], what) for each in found if each is not None for what in each[1].split(", ")
    }


def moved(rig: Rig) -> None:
    """Have rows handed over, parked, in quarantine and left, all by the owner."""
    rig.insert([row(-timedelta(days=1)), nameless("Nowhere"), row(timedelta(days=9 * 366))])
    rig.insert([row(headers={"NServiceBus.MessageId": "m" * 256}) for _ in range(2)])
    rig.insert([row() for _ in range(15)])
    rig.must(*ONCE, codes=(5,))


def reads(rig: Rig) -> Iterator[Verb]:
    """Yield what a reader does."""
    moved(rig)
    yield ("quarantine", "show", min(rig.quarantined())), {}
    for text in LOOKS:
        yield text.split(), {}
    yield ("decommission", *SALES, "--dry-run"), {}


def verifies(rig: Rig) -> Iterator[Verb]:
    """Yield what verifies; no lane was ever taken by a verify or a recall."""
    moved(rig)
    execute(rig, "DELETE FROM migrator.lease WHERE owner IS NULL")
    yield ("verify",), {}
    yield ("verify", "--deep"), {}


def hands_over(rig: Rig) -> Iterator[Verb]:
    """Yield what moves rows: all of their fates, a process that dies, and what it left."""
    rig.insert([row(-timedelta(days=1)), nameless("Elsewhere"), row(timedelta(days=9 * 366))])
    rig.insert([row(headers={"NServiceBus.MessageId": "m" * 256})])
    rig.insert([row() for _ in range(15)])
    yield ONCE, {}
    rig.create_receivers("Elsewhere")
    rig.insert([row() for _ in range(15)])
    yield ONCE, {"fault": "staged.confirmed:2"}
    yield ONCE, {}
    rig.insert([row() for _ in range(15)])
    yield (*ONCE, "--mode", "direct"), {}
    with rig.amqp() as client:
        client.channel().queue_delete("Elsewhere")


def brings_back(rig: Rig) -> Iterator[Verb]:
    """Yield what brings rows back, also those of a process that died half-way."""
    moved(rig)
    rig.insert([row() for _ in range(15)])
    rig.must(*ONCE, codes=(-9,), fault="claim.done:2")
    execute(rig, "DELETE FROM migrator.lease WHERE owner IS NULL")
    yield ("rollback", "--yes"), {}


def operates(rig: Rig) -> Iterator[Verb]:
    """Yield what an operator does by hand; no lane was ever taken by a decommission."""
    yield ("decommission", *SALES, "--wait", "0s", "--yes"), {}
    moved(rig)
    yield from ((args, {}) for args in by_hand(rig))
    rig.insert([row() for _ in range(15)])
    rig.must(*ONCE, codes=(-9,), fault="claim.done:2")
    ((batch,),) = rig.query("SELECT max(id) FROM migrator.batch WHERE state = 'claimed'")
    yield ("db", "resolve", str(batch), "--as", "claimed", "--yes"), {}


_NOW_AND_THEN: Final = {
    Right('"migrator"."event"', "INSERT"),
    Right('SEQUENCE "migrator"."event_id_seq"', "USAGE"),
    Right('"migrator"."held_destination"', "DELETE"),
}
"""Used by a daemon only, when it waits, or is told something, or a destination is free again."""
WORK: Final[dict[Purpose, Callable[[Rig], Iterator[Verb]]]] = {
    Purpose.READ: reads,
    Purpose.VERIFY: verifies,
    Purpose.HAND_OVER: hands_over,
    Purpose.ROLLBACK: brings_back,
    Purpose.OPERATE: operates,
}


def denied(us: Limited, purpose: Purpose) -> Sequence[str] | None:
    """Return the first verb that is denied something; None: none is."""
    table = us.rig.table.as_string()
    execute(us.rig, _EMPTY, f"TRUNCATE {table}")
    for args, more in WORK[purpose](us.rig):
        done = us.rig.run(*args, **{**us.environment(purpose), **more})
        if DENIED.search(done.stdout + done.stderr):
            return args
    return None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("purpose", WORK)
def test_each_right_is_needed(rig: Rig, vhost: Vhost, purpose: Purpose) -> None:
    """Without it, at least one verb is denied; with all, none is."""
    management_url = rig.management_url
    prepare(rig)
    rig.management_url = management_url  # a decommission asks it
    execute(rig, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    with limited(rig, vhost, purpose) as us:
        assert denied(us, purpose) is None
        known = set() if purpose is Purpose.READ else rights(rig, Purpose.READ)
        known |= _NOW_AND_THEN if purpose is Purpose.HAND_OVER else set()
        user = f'"{us.users[purpose]}"'
        needless = []
        for right in sorted(rights(rig, purpose) - known):
            execute(rig, f"REVOKE {right.what} ON {right.on} FROM {user}")
            if denied(us, purpose) is None:
                needless.append(right)
            execute(rig, f"GRANT {right.what} ON {right.on} TO {user}")
        assert needless == []
