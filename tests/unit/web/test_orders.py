"""Tests of ``migrator.web.orders``."""

from __future__ import annotations

import asyncio

import pytest

from migrator.web.control_values import Answer, Command, Drain, Resume, StopNow
from migrator.web.orders import NoAnswerError, NotBegunError, Orders
from tests.support.panel import MemoryPanel

QUICK_S = 0.05


def test_an_answer_is_passed_on() -> None:
    """With who gave the command."""
    panel = MemoryPanel()
    found = asyncio.run(Orders(panel).execute(Drain(), who="alice"))
    assert found == Answer(is_done=True, text="draining")
    assert panel.told == [(Drain(), "alice")]


def test_a_daemon_that_does_not_answer_holds_nothing_up() -> None:
    """Whoever gave the command is told, and so is the next, whose command is not even begun."""
    panel = MemoryPanel()
    panel.answers.clear()

    async def scenario() -> Answer:
        orders = Orders(panel, patience_s=QUICK_S)
        with pytest.raises(NoAnswerError):
            await orders.execute(Drain(), who="alice")
        with pytest.raises(NotBegunError):
            await orders.execute(StopNow(), who="bob")
        panel.answers.set()
        orders._commands._patience_s = 30  # the first has to end, and then the third
        return await orders.execute(Resume(endpoint=None), who="carol")

    assert asyncio.run(scenario()).is_done
    assert [who for _, who in panel.told] == ["alice", "carol"]


def test_the_end_does_not_wait_for_an_answer() -> None:
    """The thread that is left ends with the process."""
    panel = MemoryPanel()
    panel.answers.clear()

    async def scenario() -> None:
        orders = Orders(panel, patience_s=QUICK_S)
        with pytest.raises(NoAnswerError):
            await orders.execute(Drain(), who="alice")

    asyncio.run(scenario())
    panel.answers.set()


def test_a_bug_reaches_whoever_asked() -> None:
    """And the next command is taken."""

    class Broken(MemoryPanel):
        def execute(self, command: Command, *, who: str) -> Answer:
            if who == "alice":
                raise ZeroDivisionError
            return super().execute(command, who=who)

    async def scenario() -> Answer:
        orders = Orders(Broken())
        with pytest.raises(ZeroDivisionError):
            await orders.execute(Drain(), who="alice")
        return await orders.execute(Drain(), who="bob")

    assert asyncio.run(scenario()).is_done
