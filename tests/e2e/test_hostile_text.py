"""What strangers wrote into a timeout reaches no terminal and no log as a control character."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.rig import Rig
from tests.e2e.rows import row

TITLE: Final = "\x1b]0;owned\x07"
COLOUR: Final = "\x9b31m"
LINE: Final = "\nok: forged\r"
TURNED: Final = "\u202e"
HOSTILE: Final = f"Bill{TITLE}{COLOUR}{LINE}{TURNED}\x7fing"
_ACTED_ON: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def is_clean(*texts: str) -> None:
    """Demand that a terminal would show all of *texts*, and act on none."""
    for text in texts:
        found = _ACTED_ON.search(text)
        assert found is None, text[max(0, found.start() - 200) : found.end() + 50].encode()
        assert "\nok: forged" not in text.partition("\nheaders:")[0]


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.slow)])
def test_no_verb_writes_what_a_terminal_would_act_on(rig: Rig, tmp_path: Path, form: str) -> None:
    """Of a destination, a header, a body or an id: neither as text nor as JSON."""
    rig.settings["MIGRATOR_LOG__FORMAT"] = form
    rig.prepare()
    body = f"{{{HOSTILE}}}".encode()
    odd = replace(row(body=body, headers={HOSTILE: HOSTILE}), destination=None)
    unknown = row(destination=HOSTILE, body=body, headers={"x": HOSTILE})
    broken = replace(row(body=body), headers=f"{{{HOSTILE}")
    reply = row(headers={"NServiceBus.ReplyToAddress": HOSTILE})
    rig.insert([odd, unknown, broken, reply])
    more = ["--json"] if form == "json" else []
    verbs: list[list[str]] = [
        ["preview", "--endpoint", "Sales", "-v"],
        ["run", "--endpoint", "Sales", "--once", "-v"],
        ["status"],
        ["quarantine", "list"],
        ["quarantine", "show", broken.id],
        ["quarantine", "export"],
        ["verify", "--deep"],
        ["quarantine", "show", HOSTILE],
        ["status", "--endpoint", HOSTILE],
        ["preview", "--endpoint", HOSTILE],
        ["rollback", "--destination", HOSTILE],
        ["config", f"--no-{HOSTILE}"],
    ]
    said = ""
    for verb in verbs:
        done = rig.run(*verb, *(more if verb[1:2] != ["export"] else []))
        is_clean(done.stdout, done.stderr)
        said += done.stdout + done.stderr
    assert "owned" in said
    if form == "json":
        (kept,) = json.loads(rig.must("quarantine", "show", broken.id, "--json"))["rows"]
        assert kept["headers_text"] == broken.headers
        rows = json.loads(rig.must("quarantine", "list", "--json"))["rows"]
        assert HOSTILE in [each["destination"] for each in rows]
    for way in (["--format", "html"], ["--json"], []):
        target = tmp_path / "written"
        rig.run("preview", "--endpoint", "Sales", *way, "--output", str(target))
        is_clean(target.read_text())
