"""The status page and the reports in a real browser: they move, obey, and look finished."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from migrator.ledger.report import QuarantineCount
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.reports.preview import preview_page
from migrator.reports.verify import verify_page
from migrator.status.snapshot import Snapshot
from migrator.text import grouped
from migrator.web.control import Pause, Resume
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve
from migrator.web.views import matrix
from tests.support.browser import PHONE, Shown, new_browser, shown
from tests.support.moving import BILLING, SALES, MovingPanel
from tests.unit.reports.samples import (
    ABOUT,
    HOSTILE,
    balance,
    endpoint,
    found,
    place,
    preview,
    verification,
)

TOKEN: Final = "correct horse battery"
DESKTOP: Final = 1280
TABLET: Final = 800
EVERY_MS: Final = 2_000
"""How often the script asks."""
SCREENS: Final[Sequence[tuple[int, Literal["light", "dark"]]]] = (
    (DESKTOP, "light"),
    (DESKTOP, "dark"),
    (PHONE, "light"),
    (PHONE, "dark"),
)
BOTH_ENDS: Final = (SCREENS[0], SCREENS[-1])
"""For all pages but the first: the wide one by day, the narrow one by night."""
_COLOURS: Final = """Object.fromEntries([...document.querySelectorAll("button")].map(
  each => [each.textContent.trim(), getComputedStyle(each).backgroundColor]))"""
"""Of buttons, by their texts."""


@dataclass(frozen=True, slots=True)
class Site:
    """A daemon whose numbers move, and where its page is."""

    panel: MovingPanel
    base: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all."""
    with new_browser() as found:
        yield found


@contextmanager
def served(panel: MovingPanel, port: int = 0) -> Iterator[Site]:
    """Serve *panel* for as long as the context lasts."""
    plan = WebPlan(listen=("127.0.0.1", port), token=TOKEN, open_to_local=True)
    with serve(panel, plan, Instruments()) as found:
        assert found.address is not None
        yield Site(panel, "http://{}:{}".format(*found.address))


@pytest.fixture(scope="module")
def shared_site() -> Iterator[Site]:
    """One daemon for all."""
    with served(MovingPanel()) as found:
        yield found


@pytest.fixture
def site(shared_site: Site) -> Site:
    """The same, as if nobody had commanded it yet."""
    shared_site.panel.__init__()  # type: ignore[misc]  # all of it begins anew
    return shared_site


@pytest.fixture
def seen(browser: Browser, site: Site) -> Iterator[Shown]:
    """Its page, with a clock that goes on when it is told to."""
    with shown(browser, site.base, has_clock=True) as found:
        yield found


def log_in(page: Page) -> None:
    """Go the way that people go."""
    page.get_by_role("link", name="Log in").click()
    expect(page.get_by_label("Token")).to_be_focused()  # else the browser complains
    page.get_by_label("Your name").fill("alice")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()


def done(page: Page, endpoint: str = SALES) -> int:
    """Return how many rows of an endpoint are handed over, as the page has it."""
    number = page.locator("article").filter(has_text=endpoint).locator("data").first
    return int(number.get_attribute("value") or "")


def pass_time(page: Page) -> None:
    """Let the script ask once more, and wait until it shows what it was told."""
    live = page.locator("#live")
    before = live.get_attribute("data-shown-at") or "not yet"
    page.clock.run_for(EVERY_MS)
    expect(live).to_have_attribute("data-shown-at", re.compile(".+"))
    expect(live).not_to_have_attribute("data-shown-at", before)


def open_form(page: Page) -> None:
    """Open the form that pauses the endpoint."""
    page.locator("article").filter(has_text=SALES).get_by_text("Pause…").click()


def test_progress_moves_and_a_pause_stops_it(seen: Shown, site: Site) -> None:
    """Without loading the page anew; whoever pauses says why, and it goes on when resumed."""
    page = seen.page
    before = done(page)
    pass_time(page)
    expect(page.locator("#lost")).to_be_hidden()
    assert done(page) > before
    log_in(page)
    open_form(page)
    reason = page.locator("article").filter(has_text=SALES).get_by_label("Reason")
    reason.fill("index rebuild")
    before = done(page)
    pass_time(page)
    assert done(page) > before
    assert reason.input_value() == "index rebuild"  # whoever fills in a form is not disturbed
    page.get_by_role("button", name="Pause Sales.Orders").click()
    expect(page.get_by_role("status")).to_contain_text("Done: Sales.Orders is paused")
    expect(page.locator("article").first).to_contain_text("index rebuild (alice, status page from")
    paused = done(page)
    pass_time(page)
    assert done(page) == paused
    assert done(page, "Billing") > 0
    page.get_by_role("button", name="Resume", exact=True).click()
    pass_time(page)
    assert done(page) > paused
    assert [command for command, _ in site.panel.told] == [
        Pause(endpoint=SALES, reason="index rebuild"),
        Resume(endpoint=SALES),
    ]
    assert seen.complaints == []
    assert {each.partition("/page/")[0].rstrip("/") for each in seen.requests} == {site.base}


def test_a_daemon_that_is_gone_is_told(browser: Browser) -> None:
    """What is seen is called old; it goes on by itself when the daemon is back."""
    panel, down = MovingPanel(), ExitStack()
    first = down.enter_context(served(panel))
    with down, shown(browser, first.base, has_clock=True) as seen:
        page = seen.page
        pass_time(page)
        down.close()
        page.clock.run_for(EVERY_MS)
        lost = page.get_by_role("alert")
        expect(lost).to_contain_text(
            re.compile(r"does not answer. This page shows the state at [\d:]{8} UTC")
        )
        headline = page.locator(".verdict")
        expect(headline).to_have_class("verdict bad")
        expect(headline).to_contain_text("The daemon does not answer")
        with served(panel, int(first.base.rpartition(":")[2])):
            pass_time(page)
            expect(lost).to_be_hidden()
            expect(headline).not_to_contain_text("does not answer")


def test_a_hidden_page_asks_nothing(seen: Shown, site: Site) -> None:
    """And asks at once when somebody looks again."""
    page = seen.page
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
    event = "document.dispatchEvent(new Event('visibilitychange'));"
    pass_time(page)
    page.evaluate(hide % "true" + event)
    seen.requests.clear()
    page.clock.run_for(10 * EVERY_MS)
    assert seen.requests == []
    with page.expect_response(f"{site.base}/page/live"):
        page.evaluate(hide % "false" + event)


def test_it_fits_every_screen_by_day_and_by_night(seen: Shown, site: Site) -> None:
    """Pictures are kept for people; nothing has to be scrolled to the side."""
    page = seen.page
    log_in(page)
    open_form(page)
    page.get_by_role("button", name="Pause Sales.Orders").click()
    expect(page.locator(".quiet .level-bars tbody tr")).to_have_count(28)
    for screen in SCREENS:
        _keep(seen, "status", screen)
    page.goto(f"{site.base}/page/quarantine?endpoint=Billing")
    for screen in BOTH_ENDS:
        _keep(seen, "quarantine", screen)
    page.locator(".rows a").first.click()
    expect(page.get_by_role("heading", name="Headers")).to_be_visible()
    for screen in BOTH_ENDS:
        _keep(seen, "row", screen)
    page.goto(f"{site.base}/page/end")
    for screen in BOTH_ENDS:
        _keep(seen, "end", screen)
    assert seen.complaints == []
    page.goto(f"{site.base}/page/settings")
    page.get_by_label("lanes").fill("99")
    page.get_by_role("button", name="Set lanes").click()
    for screen in BOTH_ENDS:
        _keep(seen, "settings", screen)
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{site.base}/page/login")
    for screen in BOTH_ENDS:
        _keep(seen, "login", screen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_button_shows_what_it_is_for(
    seen: Shown, site: Site, scheme: Literal["light", "dark"]
) -> None:
    """By a colour: of what cannot be undone, of the next step, of all others."""
    page = seen.page
    log_in(page)
    seen.resize(DESKTOP, scheme=scheme)
    colours: dict[str, str] = {}
    for path in ("/page/quarantine?endpoint=Billing", "/page/end"):
        page.goto(site.base + path)
        colours |= page.evaluate(_COLOURS)
    kinds: dict[str, set[str]] = {}
    for text, colour in colours.items():
        kinds.setdefault(colour, set()).add(text)
    assert sorted(map(sorted, kinds.values())) == [
        ["Discard 3 rows", "Never send it", "Stop now"],
        ["Drain and end", "Log out", "Show", "Try again"],
        ["Try 3 rows again"],
    ]


def _keep(seen: Shown, name: str, screen: tuple[int, Literal["light", "dark"]]) -> None:
    width, scheme = screen
    seen.resize(width, scheme=scheme)
    assert (seen.width, seen.cut) == (width, [])
    seen.keep(f"{name}-{width}-{scheme}")


class CrowdedPanel(MovingPanel):
    """Has rows in quarantine for so many reasons."""

    def __init__(self, reasons: int) -> None:
        super().__init__()
        long = EndpointName("Acme.Warehouse.Shipping.Notifications.ScheduledDispatch")
        names = (BILLING, SALES, long)
        self.counts = [
            QuarantineCount(endpoint=name, reason=reason, rows=10_000 * at + 111 * n + 1)
            for n, reason in enumerate(sorted(Reason, key=len, reverse=True)[:reasons])
            for at, name in enumerate(names)
            if n % 3 != at
        ]

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        return replace(found, progress=replace(found.progress, quarantine=self.counts))


@pytest.mark.parametrize("reasons", [3, len(Reason)])
def test_every_number_in_quarantine_is_in_sight(browser: Browser, reasons: int) -> None:
    """On every screen, with its endpoint and its reason; on a phone the reason stands before it."""
    panel = CrowdedPanel(reasons)
    table = matrix(panel.counts)
    numbers = {*(each.rows for each in panel.counts), *table.sums, table.total}
    numbers |= {total for _, _, total in table.rows}
    wanted = {*table.reasons, *(name for name, _, _ in table.rows), *map(grouped, numbers), "all"}
    pairs = {(each.reason, grouped(each.rows)) for each in panel.counts}
    missing: set[object] = set()
    with served(panel) as site, shown(browser, site.base) as seen:
        log_in(seen.page)
        for path, width in product(("/", "/page/quarantine"), (PHONE, TABLET, DESKTOP)):
            seen.page.goto(site.base + path)
            seen.resize(width)
            told = seen.in_sight("table.matrix")
            assert seen.width == width
            missing |= {(path, width, each) for each in wanted - set(told)}
            if width == PHONE:
                missing |= pairs - set(pairwise(told))
    assert missing == set()


def test_reports_fit_every_screen_and_load_nothing(browser: Browser, tmp_path: Path) -> None:
    """Whatever names are in them: nothing runs, is asked for, or has to be scrolled sideways."""
    names = ["Acme.Enterprise.Orders.Warehouse.Returns.Processing.Service." * 3, HOSTILE[4]]
    rows = [endpoint(name, destinations={QueueName(name): 3_000}) for name in names]
    modes = {name: "migrate" for name in names}
    checked = verification(
        endpoints=[balance(name, handed_over=9_000, quarantined=40) for name in names],
        destinations=[place(name, waiting=800, left=90) for name in names],
        discrepancies=[found(name, name) for name in names],
        not_checked=names,
    )
    for name, text in (
        ("preview", preview_page(preview(*rows, modes=modes), about=ABOUT)),
        ("verify", verify_page(checked, about=ABOUT)),
    ):
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        with shown(browser, file.as_uri()) as seen:
            expect(seen.page.locator(".level-bars tbody tr")).to_have_count(28)
            for screen in BOTH_ENDS:
                _keep(seen, name, screen)
            assert seen.requests == [file.as_uri()]
            assert seen.complaints == []
