"""Which jobs a running service has, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

from migrator.app import App
from migrator.delays import probe as probes
from migrator.delays.probe_results import Flight, probe_delay_s
from migrator.handover.holding import Holding
from migrator.service.canary import Canary
from migrator.service.crew import Crew
from migrator.service.errand import Errand
from migrator.service.jobs import Job
from migrator.service.lookout import LOOK_EVERY, SURVEY_EVERY, Lookout
from migrator.service.purge import Purge, PurgeParts
from migrator.service.supervision import Supervision

_STATUS_EVERY: Final = timedelta(seconds=10)
_LOOK_AT_HELD_EVERY: Final = timedelta(seconds=3)
"""Asks the broker only about those whose time has come."""
_PURGE_GRACE: Final = timedelta(days=1)
"""A machine that slept at the time of the purge makes up for it."""
_CANARY_PATIENCE_S: Final = 10.0
"""So much later than what is warned of, a probe counts as lost."""


def schedule(
    app: App,
    crew: Crew,
    supervision: Supervision,
    lookout: Lookout,
    holding: Holding,
    *,
    describe: Callable[[], str],
    ends: ExitStack,
    once: bool,
) -> Sequence[Job]:
    """Return the jobs; the threads some of them need are started, and ended by *ends*."""
    jobs = [_sweep(app, crew), *_looking(lookout, ends), _held(holding, crew, ends)]
    jobs += _status(supervision, describe, ends)
    if not once:
        jobs += [*_canary(app, ends), *_purge(app, ends)]
    return jobs


def _sweep(app: App, crew: Crew) -> Job:
    """Return the job that has idle workers look for new rows."""

    def sweep() -> bool:
        crew.wake()
        return True

    return Job(name="sweep", every=app.plan.sweep_every, do=sweep)


def _held(holding: Holding, crew: Crew, ends: ExitStack) -> Job:
    """Return the job that looks at destinations that could not be reached."""

    def look() -> None:
        if holding.look():
            crew.wake()

    errand = _started(Errand("held-destinations", look), ends)
    return Job(name=errand.name, every=_LOOK_AT_HELD_EVERY, do=_asking(errand))


def _looking(lookout: Lookout, ends: ExitStack) -> Iterator[Job]:
    """Yield what reads for the panel; a slow answer is no miss, the panel tells how old it is."""
    for errand, every in (
        (lookout.look_errand, LOOK_EVERY),
        (lookout.survey_errand, SURVEY_EVERY),
    ):
        _started(errand, ends)
        yield Job(name=errand.name, every=every, do=_asking(errand))


def _started(errand: Errand, ends: ExitStack) -> Errand:
    ends.callback(errand.end)
    errand.start()
    return errand


def _asking(errand: Errand) -> Callable[[], bool]:
    def ask() -> bool:
        errand.ask()
        return True

    return ask


def _status(
    supervision: Supervision, describe: Callable[[], str], ends: ExitStack
) -> Iterator[Job]:
    """Yield what tells the service manager how far everything is; nothing without one."""
    if supervision.wants_status:
        errand = Errand("status", lambda: supervision.status(describe()))
        yield Job(name=errand.name, every=_STATUS_EVERY, do=_started(errand, ends).ask)


def _canary(app: App, ends: ExitStack) -> Iterator[Job]:
    """Yield what sends probes; nothing unless it is wanted."""
    given = app.settings.canary
    if given.every is not None:
        canary = Canary(_Flights(app), runs=app.runs, warn_after=given.warn_after)
        yield Job(
            name=canary.errand.name,
            every=given.every,
            do=_started(canary.errand, ends).ask,
            last=lambda: canary.last,
        )


def _purge(app: App, ends: ExitStack) -> Iterator[Job]:
    """Yield what deletes settled rows; nothing unless it is wanted."""
    given = app.settings.ledger
    if given.purge_after is not None:
        parts = PurgeParts(
            verify=app.ledger_facts.verify, now=app.clock.now, upkeep=app.upkeep, runs=app.runs
        )
        purge = Purge(parts, after=given.purge_after)
        yield Job(
            name=purge.errand.name,
            every=given.purge_rhythm,
            do=_started(purge.errand, ends).ask,
            grace=_PURGE_GRACE,
            last=lambda: purge.last,
        )


class _Flights:
    """Probes of the canary, as the settings want them."""

    def __init__(self, app: App) -> None:
        given = app.settings.canary
        self._app = app
        self._levels = given.probed_levels
        away_s = probe_delay_s(self._levels[-1]) + given.warn_after.total_seconds()
        self._patience_s = away_s + _CANARY_PATIENCE_S

    def fly(self, guard: Callable[[], None]) -> Flight:
        """Send probes, wait for them; see ``delays.probe.fly``."""
        app = self._app
        return probes.fly(
            app.connection,
            app.plan.delays,
            self._levels,
            patience_s=self._patience_s,
            find_bindings=app.management.bindings_from if app.management else None,
            guard=guard,
        )

    def are_back(self, flight: Flight) -> bool:
        """Return whether lost probes came in after all; see ``delays.probe.are_back``."""
        return probes.are_back(self._app.connection, flight)
