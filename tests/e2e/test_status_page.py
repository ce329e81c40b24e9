"""The status page of a real daemon, used as a browser without script would."""

from __future__ import annotations

import re
from datetime import timedelta

import httpx
import pytest

from dev.processes import free_port
from dev.servers import wait_until
from tests.e2e.daemon import noted
from tests.e2e.rig import Rig
from tests.e2e.rows import nameless, row

TOKEN = "correct horse battery"


@pytest.mark.slow
def test_the_page_follows_a_daemon_and_commands_it(rig: Rig) -> None:
    """Progress moves, a pause holds it, a row is tried again, a knob set, and all is noted."""
    rig.settings |= {
        "MIGRATOR_WEB__LISTEN": f"127.0.0.1:{(port := free_port())}",
        "MIGRATOR_WEB__TOKEN": TOKEN,
        "MIGRATOR_HANDOVER__RATE_LIMIT": "60",
        "MIGRATOR_HANDOVER__BATCH_SIZE": "50",
    }
    rig.prepare()
    rig.insert([row() for _ in range(3_000)])
    rig.insert([nameless("Nobody", timedelta(hours=1))])
    process = rig.start("run", "--all-endpoints")
    base = f"http://127.0.0.1:{port}"
    with httpx.Client(
        base_url=base, trust_env=False, headers={"origin": base}, follow_redirects=True
    ) as browser:

        def page(path: str = "/") -> str:
            try:
                return browser.get(path).text
            except httpx.TransportError:
                return ""

        def handed_over() -> int:
            found = re.search(r'<data value="(\d+)">[^<]*</data>\s*handed over', page())
            return int(found[1]) if found else 0

        def give(path: str, **form: str) -> str:
            (secret, *_) = re.findall(r'name="csrf" value="([^"]+)"', page())
            return browser.post(path, data={"csrf": secret, **form}).text

        wait_until(lambda: handed_over() > 0, what="a page with numbers")
        browser.post("/page/login", data={"token": TOKEN, "name": "alice"})
        seen = handed_over()
        wait_until(lambda: handed_over() > seen, what="progress")
        assert "Done: " in give("/page/pause", endpoint="Sales", reason="index rebuild")
        assert "index rebuild (alice, status page" in page()
        wait_until(lambda: " 0 in flight" in page() or "in flight" not in page(), what="its end")
        paused = handed_over()
        rig.create_receivers("Nobody")
        wait_until(lambda: "Try again" in page("/page/quarantine"), what="a row set aside")
        assert "1 row of the quarantine" in give("/page/retry", endpoint="Sales")
        assert handed_over() == paused
        assert "Done: " in give("/page/resume", endpoint="Sales")
        wait_until(lambda: handed_over() > paused, what="going on")
        assert "rate_limit is 500 (was 60)" in give("/page/set", knob="rate_limit", value="500")
        assert "Done: ending between two steps" in give("/page/stop")
    done = rig.finish(process)
    assert done.returncode == 0, done.stderr[-4000:]
    commands = noted(rig, "command")
    assert [each["command"] for each in commands] == ["pause", "retry", "resume", "set", "stop"]
    assert all(each["who"] == "alice, status page from 127.0.0.1" for each in commands)
    (retried,) = noted(rig, "quarantine_retried")
    assert retried["rows"] == 1
