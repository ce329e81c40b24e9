"""Tests of ``migrator.web.control``."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.web.control import (
    NO_REASON,
    Adjust,
    Answer,
    Command,
    CommandQueue,
    Discard,
    Drain,
    Pause,
    Resume,
    Retry,
    RuntimeSetting,
    StopNow,
    UnansweredError,
    build_order,
    parse_order,
)
from tests.support.panel import MemoryPanel

TEXTS = (
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=500)
    .map(str.strip)
    .filter(bool)
)
NAMES = st.none() | TEXTS.map(EndpointName)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Pause, endpoint=NAMES, reason=TEXTS),
    st.builds(Resume, endpoint=NAMES),
    st.builds(Adjust, setting=st.sampled_from(RuntimeSetting), value=TEXTS),
    *(
        st.builds(
            kind,
            endpoint=NAMES,
            reason=st.none() | st.sampled_from(Reason).map(str),
            id=st.none() | TEXTS.map(TimeoutId),
        )
        for kind in (Retry, Discard)
    ),
    st.just(Drain()),
    st.just(StopNow()),
)


@given(COMMANDS, st.none() | TEXTS)
def test_what_is_built_is_parsed(command: Command, who: str | None) -> None:
    """Every command comes out at the other end as it went in."""
    assert parse_order(build_order(command, who)) == (command, who)


def test_the_form_of_a_command_is_public() -> None:
    """It is in scripts, and in the ledger; a pause says that it had no reason."""
    retry = Retry(endpoint=None, reason="refused", id=TimeoutId("7"))
    assert build_order(retry, "alice") == {
        "command": "retry",
        "reason": "refused",
        "id": "7",
        "who": "alice",
    }
    found, _ = parse_order({"command": "pause"})
    assert found == Pause(endpoint=None, reason=NO_REASON)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "JSON object"),
        ([], "JSON object"),
        ({}, "command must be one of pause, resume, set, retry, discard, drain, stop"),
        ({"command": "explode"}, "command must be one of"),
        ({"command": ["pause"]}, "command must be one of"),
        ({"command": "pause", "why": "x"}, "pause has no why"),
        ({"command": "drain", "endpoint": "Sales"}, "drain has no endpoint"),
        ({"command": "pause", "endpoint": 3}, "endpoint must be a non-empty text"),
        ({"command": "pause", "endpoint": " "}, "endpoint must be a non-empty text"),
        ({"command": "pause", "reason": "two\nlines"}, "reason must be one line"),
        ({"command": "pause", "reason": "\x1b[2J"}, "reason must be one line"),
        ({"command": "pause", "reason": "x" * 501}, "at most 500"),
        ({"command": "drain", "who": "a\rb"}, "who must be one line"),
        ({"command": "set", "setting": "batch_size"}, "value must be given"),
        ({"command": "set", "value": "5"}, "setting must be one of batch_size"),
        ({"command": "retry", "reason": "bad-luck"}, "reason must be one of"),
        ({"command": "retry", "timeout": "7"}, "retry has no timeout"),
        ({"command": "set", "setting": "warp", "value": "9"}, "setting must be one of"),
    ],
)
def test_what_is_not_understood_is_refused(document: object, text: str) -> None:
    """Nothing is guessed, and no text can fake a line of the log."""
    with pytest.raises(ValueError, match=text):
        parse_order(document)


def test_a_daemon_that_does_not_answer_holds_nothing_up() -> None:
    """Whoever gave the command is told, and so is the next, whose command is not even begun."""
    panel = MemoryPanel()
    panel.answers.clear()

    async def scenario() -> Answer:
        commands, began_s = CommandQueue(panel, timeout_s=0.5), time.monotonic()
        with pytest.raises(UnansweredError, match="may still carry it out") as given:
            await commands.execute(Drain(), who="alice")
        assert given.value.status == 504
        assert time.monotonic() - began_s < 0.9  # its turn came at once
        commands._commands._timeout_s = 0.05
        with pytest.raises(UnansweredError, match="nothing was done") as kept:
            await commands.execute(StopNow(), who="bob")
        assert kept.value.status == 503
        panel.answers.set()
        commands._commands._timeout_s = 30  # the first has to end, and then the third
        answer = await commands.execute(Resume(endpoint=None), who="carol")
        panel.answers.clear()
        commands._commands._timeout_s = 0.05
        with pytest.raises(UnansweredError):
            await commands.execute(Drain(), who="dave")
        return answer

    assert asyncio.run(scenario()).is_done  # which does not wait for dave's answer
    panel.answers.set()
    assert [who for _, who in panel.told] == ["alice", "carol", "dave"]


def test_a_bug_reaches_whoever_asked() -> None:
    """And the next command is taken."""

    class Broken(MemoryPanel):
        def execute(self, command: Command, *, who: str) -> Answer:
            if who == "alice":
                raise ZeroDivisionError
            return super().execute(command, who=who)

    async def scenario() -> Answer:
        commands = CommandQueue(Broken())
        with pytest.raises(ZeroDivisionError):
            await commands.execute(Drain(), who="alice")
        return await commands.execute(Drain(), who="bob")

    assert asyncio.run(scenario()) == Answer(is_done=True, text="draining")
