"""All settings, and what has to hold between sections. Frozen; unknown keys are errors.

A field's description is shown by ``migrator config show`` and tested to be in the docs.
"""

from __future__ import annotations

from collections import Counter
from typing import Self

from pydantic import field_validator, model_validator

from migrator.config.process import Hooks, Log, Telemetry, Web
from migrator.config.servers import Broker, Ledger, Store, StoreKind
from migrator.config.values import Section
from migrator.config.work import (
    Canary,
    Dispatch,
    Endpoint,
    EndpointMode,
    HandOver,
    NearDue,
    Throttle,
)


class Settings(Section):
    """All settings; built by ``load`` only, which merges the sources itself."""

    store: Store = Store()
    broker: Broker = Broker()
    handover: HandOver = HandOver()
    dispatch: Dispatch = Dispatch()
    canary: Canary = Canary()
    throttle: Throttle = Throttle()
    ledger: Ledger = Ledger()
    endpoints: tuple[Endpoint, ...] = ()
    web: Web = Web()
    hooks: Hooks = Hooks()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()

    def endpoint(self, name: str) -> Endpoint:
        """Return what is set for the endpoint called *name*, or the defaults."""
        return next((e for e in self.endpoints if e.name == name), Endpoint(name=name))

    @field_validator("endpoints")
    @classmethod
    def _are_distinct(cls, value: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        twice = sorted(n for n, times in Counter(e.name for e in value).items() if times > 1)
        if twice:
            raise ValueError(f"must name each endpoint once; repeated: {', '.join(twice)}")
        queues = Counter(e.input_queue for e in value if e.mode is not EndpointMode.MIGRATE)
        shared = sorted(queue for queue, times in queues.items() if times > 1)
        if shared:
            raise ValueError(f"must have a queue each; shared: {', '.join(shared)}")
        return value

    @model_validator(mode="after")
    def _has_one_ledger(self) -> Self:
        given, store = self.ledger.url, self.store
        if store.kind.has_own_ledger or given is None or not given.get_secret_value():
            return self
        if store.url is None or store.url.get_secret_value() != given.get_secret_value():
            raise ValueError(
                f"ledger.url must be empty with store.kind {store.kind}: its ledger is in the "
                "store's own database"
            )
        return self

    @model_validator(mode="after")
    def _can_be_dispatched(self) -> Self:
        if not self.store.kind.has_own_ledger:
            return self
        dispatched = [e.name for e in self.endpoints if e.mode is not EndpointMode.MIGRATE]
        if self.handover.near_due is NearDue.DISPATCH:
            dispatched.append("handover.near_due")
        if dispatched:
            raise ValueError(
                f"store.kind {self.store.kind} can only be migrated from: dispatch and forward "
                f"need a SQL store (set for: {', '.join(dispatched)}); leave these to the timeout "
                "manager"
            )
        return self

    @model_validator(mode="after")
    def _places_fit_the_store(self) -> Self:
        placed = [each.name for each in self.endpoints if each.has_place]
        if self.store.kind is StoreKind.NHIBERNATE and placed:
            raise ValueError(
                f"no endpoint may have a table of its own: {', '.join(placed)}; all are in that "
                "of store.nhibernate"
            )
        return self

    @model_validator(mode="after")
    def _remembers_what_was_sent(self) -> Self:
        after = self.ledger.purge_after
        if after is not None and after < self.dispatch.remember:
            raise ValueError("ledger.purge_after must not be shorter than dispatch.remember")
        return self
