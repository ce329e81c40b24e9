"""The status page of a real daemon, in a real browser."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

from dev.processes import free_port
from dev.servers import wait_until
from tests.e2e.daemon import noted
from tests.e2e.rig import Rig
from tests.e2e.rows import nameless, row
from tests.support.browser import new_browser, shown

TOKEN = "correct horse battery"


def handed_over(page: Page) -> int:
    """Return how many rows the page says are handed over."""
    return int(page.locator("article data").first.get_attribute("value") or "")


@pytest.mark.slow
def test_the_page_follows_a_daemon_and_commands_it(rig: Rig) -> None:
    """Progress moves, a pause holds it, a row is tried again, a knob set, and all is noted."""
    port = free_port()
    rig.settings |= {
        "MIGRATOR_WEB__LISTEN": f"127.0.0.1:{port}",
        "MIGRATOR_WEB__TOKEN": TOKEN,
        "MIGRATOR_HANDOVER__RATE_LIMIT": "60",
        "MIGRATOR_HANDOVER__BATCH_SIZE": "50",
    }
    rig.prepare()
    rig.insert([row() for _ in range(3_000)])
    process = rig.start("run", "--all-endpoints")
    base = f"http://127.0.0.1:{port}"
    with new_browser() as browser:
        wait_until(lambda: _answers(port), what="a page")
        rig.insert([nameless("Nobody", timedelta(hours=1))])
        with shown(browser, base) as seen:
            page = seen.page
            seen_numbers = []
            for _ in range(4):
                time.sleep(4)
                seen_numbers.append(handed_over(page))
            assert all(after > before for before, after in pairwise(seen_numbers[1:]))
            expect(page.locator(".ladder tbody tr")).to_have_count(28)
            page.get_by_role("link", name="Log in").click()
            page.get_by_label("Your name").fill("alice")
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Log in").click()
            page.locator("article").get_by_text("Pause…").click()
            page.locator("article").get_by_label("Reason").fill("index rebuild")
            page.get_by_role("button", name="Pause Sales").click()
            expect(page.locator("article")).to_contain_text("index rebuild (alice, status page")
            time.sleep(8)  # what is claimed is finished, and read by the daemon
            paused = handed_over(page)
            seen.resize(1280)
            seen.keep("daemon-1280-light")
            seen.resize(390, scheme="dark")
            seen.keep("daemon-390-dark")
            time.sleep(5)
            assert handed_over(page) == paused > 0
            rig.create_receivers("Nobody")
            page.get_by_role("link", name="Look at the rows").click()
            page.get_by_role("button", name="Try again", exact=True).click()
            expect(page.get_by_role("status")).to_contain_text("1 row of the quarantine")
            page.goto(base)
            page.get_by_role("button", name="Resume", exact=True).click()
            expect(page.locator("article data").first).not_to_have_attribute("value", str(paused))
            page.get_by_role("link", name="Set something else").click()
            page.get_by_label("rate_limit").fill("500")
            page.get_by_role("button", name="Set rate_limit").click()
            expect(page.get_by_role("status")).to_contain_text("rate_limit is 500 (was 60)")
            page.goto(f"{base}/page/end")
            page.get_by_role("button", name="Stop now").click()
            expect(page.get_by_role("status")).to_contain_text("Done: ending between two steps")
            assert seen.complaints == []
    done = rig.finish(process)
    assert done.returncode == 0, done.stderr[-4000:]
    commands = [each["command"] for each in noted(rig, "command")]
    assert commands == ["pause", "retry", "resume", "set", "stop"]
    assert all(each["who"] == "alice, status page from 127.0.0.1" for each in noted(rig, "command"))
    (retried,) = noted(rig, "quarantine_retried")
    assert retried["rows"] == 1


def _answers(port: int) -> bool:
    with socket.socket() as asker:
        return asker.connect_ex(("127.0.0.1", port)) == 0
