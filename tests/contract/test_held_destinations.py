"""What the ledger keeps of destinations that cannot be reached, over every database."""

from __future__ import annotations

from datetime import timedelta

from migrator.ledger.held_destinations import HeldDestination
from migrator.ledger.work import StoreEndpoint
from tests.contract.site import NOW, Site

SALES = StoreEndpoint(name="Sales", source="public.Sales_TimeoutData")  # type: ignore[arg-type]
BILLING = StoreEndpoint(name="Billing", source="public.Billing_TimeoutData")  # type: ignore[arg-type]


def held(destination: str, *, of: StoreEndpoint = SALES, **changes: object) -> HeldDestination:
    """Return a destination that waits."""
    values = {
        "endpoint": of.name,
        "source": of.source,
        "destination": destination,
        "reason": "destination-unknown",
        "detail": "no exchange",
        "tries": 1,
        "since": NOW,
        "next_try_at": NOW + timedelta(seconds=5),
    } | changes
    return HeldDestination(**values)  # type: ignore[arg-type]


def test_held_destinations_are_kept_per_endpoint(site: Site) -> None:
    """What is held for one endpoint is nothing to another; everything comes back as it was."""
    odd = held("Büro 'x'; --@MACHINE", tries=7, detail="ä", since=NOW - timedelta(microseconds=1))
    site.held.hold(odd)
    site.held.hold(held("A"))
    site.held.hold(held("A", of=BILLING, tries=2))
    assert site.held.held(SALES) == [held("A"), odd]
    assert site.held.held(BILLING) == [held("A", of=BILLING, tries=2)]


def test_holding_again_replaces_what_was_recorded(site: Site) -> None:
    """There is one entry per destination."""
    site.held.hold(held("A"))
    later = held("A", tries=2, reason="unroutable", next_try_at=NOW + timedelta(hours=1))
    site.held.hold(later)
    assert site.held.held(SALES) == [later]


def test_freed_destinations_are_gone(site: Site) -> None:
    """Freeing is for these names of this endpoint only; repeating it is harmless."""
    for name in ("A", "B", "C"):
        site.held.hold(held(name))
    site.held.hold(held("A", of=BILLING))
    for _ in range(2):
        site.held.free(SALES, ["A", "C", "never held"])
    site.held.free(SALES, [])
    assert site.held.held(SALES) == [held("B")]
    assert site.held.held(BILLING) == [held("A", of=BILLING)]
