"""Tests of ``migrator.cli.transfer``; the moving itself is tested on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import TargetUnavailable
from migrator.nservicebus.timeouts import QueueName
from migrator.transfer.move import (
    DestinationOutcome,
    LevelOutcome,
    Outcome,
    TransferSettings,
    WhyLeft,
)
from migrator.transfer.rules import TransferRequest
from tests.unit.cli.conftest import Program

URL = ("--broker-url", "amqp://a:b@broker-1")


class Ready:
    """A transfer that finds what it is told to."""

    has_our_clock = True

    def __init__(self) -> None:
        self.outcome = Outcome()
        self.requests: list[TransferRequest] = []
        self.error: Exception | None = None

    def waiting(self) -> int:
        return 3

    def run(self) -> Outcome:
        if self.error is not None:
            raise self.error
        return self.outcome

    @contextmanager
    def open(
        self,
        request: TransferRequest,
        _settings: TransferSettings,
        *,
        on_progress: Callable[[Outcome], None],
    ) -> Iterator[Ready]:
        self.requests.append(request)
        on_progress(self.outcome)
        yield self


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Ready:
    """What the verbs find instead of two brokers."""
    made = Ready()
    monkeypatch.setattr("migrator.app.delays.open_transfer", made.open)
    return made


def _troubled() -> Outcome:
    outcome = Outcome(uncertain=2, largest_uncertainty=timedelta(seconds=65_536))
    outcome.levels[20] = LevelOutcome()
    outcome.levels[16] = LevelOutcome(moved=5, poison=1, left=2, is_complete=False)
    outcome.why_left[WhyLeft.DESTINATION_UNKNOWN] = 2
    outcome.destinations[QueueName("My.Sales")] = DestinationOutcome(moved=5)
    outcome.destinations[QueueName("Sales")] = DestinationOutcome(left=2, detail="no such queue")
    return outcome


def test_nothing_happens_without_yes(program: Program, ready: Ready) -> None:
    """It says what would; a dry run needs no consent."""
    refused = program(*URL, "delays", "migrate", codes=[2])
    assert "takes every message out of the delays v1; add --yes" in refused.err
    assert not ready.requests
    program(*URL, "delays", "migrate", "--dry-run", "--distrust-headers")
    ready.outcome.levels[16] = LevelOutcome(moved=5)
    ended = program(*URL, "delays", "migrate", "--yes")
    assert "5 messages moved to the delays v2" in ended.err
    assert "run again to move what was published" in ended.err
    dry, request = ready.requests
    assert (dry.is_dry, dry.believe_headers) == (True, False)
    assert (request.source, request.target) == (DelaysVersion.V1, DelaysVersion.V2)
    assert (request.target_url, request.believe_headers) == (None, True)
    assert request.poison_queue == "migrator.poison.migrate"


def test_what_was_left_is_said_with_reasons(program: Program, ready: Ready) -> None:
    """By level and destination; exit code 5. The document has every number."""
    ready.outcome = _troubled()
    ready.has_our_clock = False
    ended = program(*URL, "delays", "migrate", "--yes", codes=[5])
    rows = [line.split()[0] for line in ended.out.splitlines()]
    assert rows == ["level", "16", "destination", "My.Sales", "Sales"]
    for text in (
        "2 messages left in place",
        "1 message put into migrator.poison.migrate",
        "2 messages with headers that are not reliable",
        "by 65 536 s at most",
        "level 16 was not read to its end",
        "messages for My.Sales also reach Sales",
        "and this machine's differ",
    ):
        assert text in ended.err
    document = program(*URL, "delays", "migrate", "--dry-run", "--json", codes=[5]).document
    assert document["schema"] == "migrator/delays-migrate/1"
    assert (document["moved"], document["left"], document["poison"]) == (5, 2, 1)
    assert document["why_left"] == {"destination-unknown": 2}
    assert document["uncertain"] == {"messages": 2, "late_by_at_most_s": 65536.0}
    level = {"level": 16, "found": 8, "moved": 5, "left": 2, "poison": 1, "is_complete": False}
    assert document["levels"][1] == level
    assert document["destinations"][1]["detail"] == "no such queue"
    assert document["collisions"] == [{"catcher": "Sales", "caught": "My.Sales"}]


def test_transfer_names_another_broker(program: Program, ready: Ready, tmp_path: Path) -> None:
    """By its URL or by a file that holds it, and only by one of them."""
    other = "amqp://c:d@broker-2/prod"
    file = tmp_path / "target"
    file.write_text(f"{other}\n", encoding="utf-8")
    program(*URL, "delays", "transfer", "--to-url", other, "--yes")
    program(*URL, "delays", "transfer", "--delays", "v1", "--to-url-file", str(file), "--yes")
    assert [request.target_url for request in ready.requests] == [other, other]
    assert [str(request.source) for request in ready.requests] == ["v2", "v1"]
    assert {str(request.target) for request in ready.requests} == {"v2"}
    for wrong in ((), ("--to-url", other, "--to-url-file", str(file))):
        ended = program(*URL, "delays", "transfer", *wrong, "--yes", codes=[2])
        assert "give --to-url or --to-url-file" in ended.err
    missing = ("--to-url-file", str(tmp_path / "nothing"), "--yes")
    assert "cannot be read" in program(*URL, "delays", "transfer", *missing, codes=[2]).err


def test_an_interruption_says_what_is_true(program: Program, ready: Ready) -> None:
    """How much was moved, and how to go on."""
    ready.outcome.levels[16] = LevelOutcome(moved=5)
    ready.error = TargetUnavailable("the connection was lost")
    ended = program(*URL, "delays", "migrate", "--yes", codes=[4])
    assert "5 messages moved, nothing is lost; run again" in ended.err
