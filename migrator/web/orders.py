"""Commands on their way to the daemon: one at a time, and none holds up the web side.

The daemon answers at once unless the ledger, where it notes each command, is slow. Whatever
happens, whoever gave a command is told what is true: done, refused, not begun, or not known yet.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, cast

from migrator.ledger.report import QuarantineFilter
from migrator.web.control_values import Answer, Command
from migrator.web.panel import Panel
from migrator.web.snapshot import QuarantinePage

_T = TypeVar("_T")

PATIENCE_S: Final = 10.0
"""How long a command may wait for its turn, and then for its answer."""


class NotBegunError(Exception):
    """Another command is still under way; this one was not given to the daemon."""


class NoAnswerError(Exception):
    """The daemon has the command and did not answer in time; it may still do it."""


class Orders:
    """Hands commands to a panel, and asks it what may take a while."""

    def __init__(self, panel: Panel, *, patience_s: float = PATIENCE_S) -> None:
        """Nothing is asked yet."""
        self._panel = panel
        self._commands = _Turns(name="web-command", patience_s=patience_s)
        self._looks = _Turns(name="web-look", patience_s=patience_s)

    async def execute(self, command: Command, *, who: str) -> Answer:
        """Return what came of *command*.

        Raises:
            NotBegunError: It was not given to the daemon.
            NoAnswerError: It was, and nobody knows yet.
        """
        return await self._commands.call(lambda: self._panel.execute(command, who=who))

    async def quarantine(
        self, which: QuarantineFilter, *, after: int, limit: int
    ) -> QuarantinePage:
        """Return a page of rows in quarantine; no command waits for it."""
        try:
            return await self._looks.call(
                lambda: self._panel.quarantine(which, after=after, limit=limit)
            )
        except (NotBegunError, NoAnswerError):
            return QuarantinePage(trouble="the ledger did not answer in time; try again")


class _Turns:
    """Calls that may take a while, one at a time, each in a thread of its own."""

    def __init__(self, *, name: str, patience_s: float) -> None:
        self._name = name
        self._patience_s = patience_s
        self._turn = asyncio.Lock()

    async def call(self, do: Callable[[], _T]) -> _T:
        try:
            await asyncio.wait_for(self._turn.acquire(), self._patience_s)
        except TimeoutError as exc:
            raise NotBegunError from exc
        work = asyncio.ensure_future(_in_thread(do, name=self._name))
        work.add_done_callback(self._over)  # not before: the next waits even when we do not
        done, _ = await asyncio.wait({work}, timeout=self._patience_s)
        if not done:
            raise NoAnswerError
        return work.result()

    def _over(self, work: asyncio.Future[_T]) -> None:
        self._turn.release()
        if not work.cancelled():
            work.exception()  # whoever still waits sees it; asyncio need not complain


async def _in_thread(do: Callable[[], _T], *, name: str) -> _T:
    """Return what *do* returns, in a thread that keeps no process from ending."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, error: Exception | None) -> None:
        if result.done():  # nobody waits any more
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("_T", value))

    def work() -> None:
        value, error = None, None
        try:
            value = do()
        except Exception as exc:
            error = exc
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await result
