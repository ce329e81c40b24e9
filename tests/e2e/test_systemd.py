"""As a systemd service: the units pass systemd's own checks, and the daemon keeps its protocol."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dev.servers import wait_until
from migrator.config.sources import SECRETS
from tests.e2e.rig import Rig
from tests.support.service_manager import ServiceManager

UNITS = Path(__file__).parents[2] / "systemd"
NAMES = ("migrator.service", "migrator@.service")
MOST_EXPOSURE = 1.5
PROGRAM = "/opt/migrator/bin/migrator"
INTERVAL_S = 1.0


def said(tool: str, *args: str | Path) -> str:
    """Return all that *tool* says, and demand that it is content; skip where it is missing."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed (Debian package systemd)")
    command: Sequence[str | Path] = [path, *args]
    environment = {**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the units, and a program that is there."""
    for name in NAMES:
        text = (UNITS / name).read_text(encoding="utf-8")
        assert text.count(PROGRAM) == 1
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_is_verified_without_a_word(installed: Path, name: str) -> None:
    """Unknown or misspelt settings would be named; an instance is made of a template."""
    assert said("systemd-analyze", "verify", installed / name) == ""


def test_a_unit_exposes_little() -> None:
    """By systemd's own measure; each setting that lowers it is in the unit."""
    found = said("systemd-analyze", "security", "--offline=yes", "--no-pager", UNITS / NAMES[0])
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", found)
    assert exposure is not None, found
    assert float(exposure[1]) <= MOST_EXPOSURE


def test_both_units_differ_in_nothing_but_the_endpoint() -> None:
    """What is learnt for the one holds for the other."""
    one, each = (
        [
            line.replace(" of %I", "").replace(" --endpoint %I", "").replace("%p@%i", "migrator")
            for line in (UNITS / name).read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")
        ]
        for name in NAMES
    )
    assert one == each
    assert "ProcSubset=pid" not in one  # leases need the boot's id from /proc/sys


def test_every_secret_of_the_settings_is_a_credential() -> None:
    """By the name the page gives it; each file is there after the installation."""
    page = (UNITS.parent / "docs" / "systemd.md").read_text(encoding="utf-8")
    shown = dict(
        re.findall(r"^\| `[\w-]+` \| `([\w.]+)_file = \"([\w-]+)\"` \|", page, re.MULTILINE)
    )
    assert {tuple(name.split(".")) for name in shown} == set(SECRETS)
    wanted = {(name, f"/etc/migrator/{name}") for name in shown.values()}
    for name in NAMES:
        unit = (UNITS / name).read_text(encoding="utf-8")
        assert set(re.findall("^LoadCredential=(.+):(.+)$", unit, re.MULTILINE)) == wanted
    made = (UNITS / "tmpfiles.d" / "migrator.conf").read_text(encoding="utf-8")
    assert set(re.findall("^f (\\S+) 0600 root root ", made, re.MULTILINE)) == {
        path for _, path in wanted
    }


def test_the_user_and_the_folder_are_made(tmp_path: Path) -> None:
    """By sysusers and tmpfiles, in a root of our own."""
    (tmp_path / "etc").mkdir()
    said("systemd-sysusers", f"--root={tmp_path}", UNITS / "sysusers.d" / "migrator.conf")
    users = (tmp_path / "etc" / "passwd").read_text(encoding="utf-8")
    assert re.search(r"^migrator:.*:/usr/sbin/nologin$", users, re.MULTILINE)
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder to root")
    tmpfiles = UNITS / "tmpfiles.d" / "migrator.conf"
    secret = tmp_path / "etc" / "migrator" / "store-url"
    for text in ("", "kept"):
        said("systemd-tmpfiles", f"--root={tmp_path}", "--create", tmpfiles)
        assert secret.parent.stat().st_mode & 0o777 == 0o750
        assert (secret.read_text(), secret.stat().st_mode & 0o777) == (text, 0o600)
        secret.write_text("kept")
        secret.chmod(0o644)


def silent_s(manager: ServiceManager) -> float:
    """Return for how many seconds there was no sign of life."""
    return time.monotonic() - manager.times_s("WATCHDOG=1")[-1]


def test_a_service_manager_hears_what_is_true(rig: Rig, tmp_path: Path) -> None:
    """READY after every check only; no sign of life while a lane hangs; STOPPING at the end."""
    rig.is_fresh = True
    rig.prepare()
    with ServiceManager(tmp_path / "notify") as manager, ServiceManager(tmp_path / "no") as other:
        refused = rig.start(
            *("run", "--endpoint", "Sales", "--delays", "v1"), NOTIFY_SOCKET=other.address
        )  # whose levels are missing
        process = rig.start(
            *("run", "--endpoint", "Sales"),
            NOTIFY_SOCKET=manager.address,
            WATCHDOG_USEC=str(int(INTERVAL_S * 1e6)),
            MIGRATOR_HANDOVER__SWEEP_INTERVAL="200ms",
            MIGRATOR_WEB__SOCKET="auto",
            RUNTIME_DIRECTORY=str(tmp_path),
        )
        assert rig.finish(refused).returncode == 3
        assert other.heard == []
        wait_until(lambda: bool(manager.times_s("WATCHDOG=1")), what="a sign of life")
        assert manager.messages()[:2] == ["READY=1", "STATUS=working"]
        assert (tmp_path / "control.sock").stat().st_mode & 0o777 == 0o660
        with rig.sql() as connection, connection.transaction():
            connection.execute("LOCK TABLE migrator.batch IN ACCESS EXCLUSIVE MODE")
            # at its next turn the lane asks for batches that were put into it, and waits
            wait_until(lambda: silent_s(manager) > 4 * INTERVAL_S, what="no sign of life")
            last_s = manager.times_s("WATCHDOG=1")[-1]
        wait_until(lambda: manager.times_s("WATCHDOG=1")[-1] > last_s, what="signs again")
        log = rig.stop(process)
    assert "worker_hangs" in log
    assert manager.messages("STOPPING") == ["STOPPING=1"]
