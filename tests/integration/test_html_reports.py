"""Reports in a real browser: they load nothing, fit every screen, and pictures of them are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from migrator.nservicebus.timeouts import QueueName
from migrator.reports.preview import preview_page
from migrator.reports.verify import verify_page
from tests.support.browser import DESKTOP, PHONE, new_browser, shown
from tests.unit.reports.samples import (
    ABOUT,
    HOSTILE,
    balance,
    dispatched,
    endpoint,
    found,
    place,
    preview,
    verification,
)

LONG: Final = "Acme.Enterprise.Orders.Warehouse.Returns.Processing.Service." * 3
SCREENS: Final[Sequence[tuple[int, Literal["light", "dark"]]]] = (
    (DESKTOP, "light"),
    (PHONE, "dark"),
)


def reports() -> dict[str, str]:
    """Return a page of each kind, about names as bad as names can be."""
    names = [LONG, HOSTILE[4]]
    rows = [endpoint(name, destinations={QueueName(name): 3_000}) for name in names]
    modes = {name: "migrate" for name in names} | {"Shipping": "dispatch"}
    previewed = preview(endpoint(), *rows, modes=modes | {"Sales": "migrate"})
    checked = verification(
        endpoints=[balance(name, handed_over=9_000, quarantined=40) for name in names],
        destinations=[place(name, waiting=800, left=90) for name in names],
        discrepancies=[found(name, name) for name in names],
        not_checked=names,
    )
    return {
        "preview": preview_page({**previewed, "dispatched": [dispatched()]}, about=ABOUT),
        "verify": verify_page(checked, about=ABOUT),
    }


def test_reports_fit_every_screen_and_load_nothing(tmp_path: Path) -> None:
    """Whatever names are in them: nothing runs, is asked for, or has to be scrolled sideways."""
    with new_browser() as browser:
        for name, text in reports().items():
            file = tmp_path / f"{name}.html"
            file.write_text(text, encoding="utf-8")
            with shown(browser, file.as_uri()) as seen:
                assert seen.page.locator(".ladder tbody tr").count() == 28
                for width, scheme in SCREENS:
                    seen.resize(width, scheme=scheme)
                    assert seen.width == width
                    seen.keep(f"{name}-{width}-{scheme}")
                assert seen.requests == [file.as_uri()]
                assert seen.complaints == []
