"""A half-finished run of the vendor's migration tool: two tools at the same timeouts lose some."""

from __future__ import annotations

import pytest

from migrator.preflight.checks_store import vendor_run
from migrator.preflight.findings import Level
from tests.contract.any_site import AnySite, hours
from tests.unit.preflight.fakes import context

pytestmark = pytest.mark.every_store


def findings(site: AnySite) -> list[tuple[Level, str]]:
    """Return what the preflight check finds."""
    found = vendor_run(context(store=site.store))
    return [(each.level, each.text) for each in found]


def test_a_half_finished_run_is_refused(site: AnySite) -> None:
    """Until it is finished or aborted with that tool; its endpoint is named."""
    site.create(hours(1))
    before = findings(site)
    assert [level for level, _ in before] == [Level.OK]
    with site.vendor_run():
        found = findings(site)
        assert {level for level, _ in found} == {Level.REFUSED}
        assert any(site.endpoint_name in text for _, text in found)
    assert findings(site) == before
