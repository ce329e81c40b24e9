"""A running daemon obeys: by its socket without a token, by signals, and all of it is noted."""

from __future__ import annotations

import signal
from pathlib import Path

from dev.servers import wait_until
from tests.e2e.daemon import listen, listens, noted, signals, status, told
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.support.service_manager import ServiceManager

SETTINGS = """\
[[endpoints]]
name = "Sales"
[[endpoints]]
name = "Shop"
[handover]
batch_size = 100
"""


def test_an_operator_pauses_resumes_sets_and_drains(rig: Rig, tmp_path: Path) -> None:
    """Nothing of a paused endpoint is claimed, the other goes on; who, what and result are kept."""
    rig.config = tmp_path / "migrator.toml"
    rig.config.write_text(SETTINGS, encoding="utf-8")
    shop = Rig(rig.database_url, rig.broker_url, endpoint="Shop")
    shop.create_store()
    listen(rig, tmp_path)
    rig.prepare()
    process = rig.start("run")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    assert (tmp_path / "control.sock").stat().st_mode & 0o777 == 0o660
    said = rig.must("pause", "--endpoint", "Sales", "--reason", "index rebuild")
    assert said.startswith("Sales is paused")
    rig.insert([row() for _ in range(5)])
    shop.insert([row() for _ in range(5)])
    wait_until(lambda: not shop.stored_ids(), what="the other endpoint")
    assert len(rig.stored_ids()) == 5
    (hold,) = status(rig)["holds"]
    assert (hold["signal"], hold["endpoint"]) == ("paused", "Sales")
    assert hold["observed"].startswith("index rebuild (")
    no = told(rig, command="pause", endpoint="Billing", reason="a mistake")
    assert (no["is_done"], "does not work on Billing" in no["text"]) == (False, True)
    assert told(rig, command="resume")["is_done"]
    assert told(rig, command="set", setting="lanes", value="2", who="Jo")["is_done"]
    wait_until(lambda: not rig.stored_ids(), what="rows of what was paused")
    assert status(rig)["settings"]["lanes"] == "2"
    wait_until(lambda: len(status(rig)["ledger"]["lanes"]) == 2, what="two lanes")
    rig.must("pause", "--reason", "until Monday")
    # events are written in the background
    wait_until(lambda: len(noted(rig, "hold_began")) == 2, what="a note of it")
    rig.kill(process)
    (tmp_path / "control.sock").unlink()
    rig.insert([row()])
    process = rig.start("run")
    wait_until(lambda: listens(rig), what="a daemon after a restart")
    holds = status(rig)["holds"]
    assert [hold["endpoint"] for hold in holds] == ["Sales", "Shop"]
    assert all(hold["observed"].startswith("until Monday (") for hold in holds)
    assert len(rig.stored_ids()) == 1
    assert told(rig, command="resume")["is_done"]
    wait_until(lambda: not rig.stored_ids(), what="rows after the restart")
    rig.must("drain")
    assert "pause_kept" in (ended := rig.finish(process)).stderr
    assert ended.returncode == 0
    assert not (tmp_path / "control.sock").exists()
    commands = noted(rig, "command")
    assert sorted(each["command"] for each in commands) == [
        *("drain", "pause", "pause", "pause", "resume", "resume", "set")
    ]
    assert any("Jo" in each["who"] for each in commands)
    assert all(each["who"] and each["answer"] for each in commands)
    assert len(noted(rig, "hold_began")) == 4  # of one, of all, and of each after the restart
    assert len(noted(rig, "hold_ended")) == 3


def test_settings_are_read_anew_upon_sighup(rig: Rig, tmp_path: Path) -> None:
    """What can change does, the service manager hears of it, and wrong settings change nothing."""
    touch_file = tmp_path / "wait"
    touch_file.touch()
    rig.config = tmp_path / "migrator.toml"
    rig.config.write_text(SETTINGS.partition('[[endpoints]]\nname = "Shop"')[0], encoding="utf-8")
    listen(rig, tmp_path)
    rig.prepare()
    with ServiceManager(tmp_path / "notify") as manager:
        process = rig.start("run", NOTIFY_SOCKET=manager.address)
        wait_until(lambda: "READY=1" in manager.messages(), what="a daemon")
        rig.config.write_text(
            f"{SETTINGS}rate_limit = 50\nlanes = 2\n[throttle]\ntouch_file = '{touch_file}'\n",
            encoding="utf-8",
        )
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: bool(noted(rig, "reload")), what="a reload")
        wait_until(lambda: manager.messages().count("READY=1") == 2, what="READY")
        (told,) = [each for each in manager.messages() if each.startswith("RELOADING=1\n")]
        assert told.partition("\nMONOTONIC_USEC=")[2].isdigit()
        wait_until(lambda: signals(rig) == ["touch_file"], what="a hold for the file")
        found = status(rig)
        assert (found["settings"]["rate_limit"], found["settings"]["lanes"]) == ("50", "2")
        rig.insert([row()])
        touch_file.unlink()
        wait_until(lambda: not rig.stored_ids(), what="going on without the file")
        rig.config.write_text("[handover]\nlanes = 0\n", encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(noted(rig, "reload")) == 2, what="another reload")
        assert status(rig)["settings"]["lanes"] == "2"
        log = rig.stop(process)
    done, refused = noted(rig, "reload")
    settings = ["handover.batch_size", "handover.lanes", "handover.rate_limit"]
    assert done["changed"] == [*settings, "throttle.touch_file"]
    assert done["needs_restart"] == ["endpoints"]
    assert not refused["is_done"]
    assert "reload_refused" in log
