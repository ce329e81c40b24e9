"""What would stop everything without a word: the program says what it is, and what to do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dev.servers import wait_until
from migrator.errors import ExitCode
from tests.e2e.daemon import listen, listens, told
from tests.e2e.rig import Rig
from tests.e2e.rows import row

ONCE = ("run", "--endpoint", "Sales", "--once")
HOUR = timedelta(hours=1)


# ── settings that contradict each other ─────────────────────────────────────────────────────────


def test_a_horizon_before_the_cutoff_is_refused_wherever_it_is_set(
    rig: Rig, tmp_path: Path
) -> None:
    """No row is due both after the cutoff and before the horizon."""
    rig.prepare()
    rig.insert([row(HOUR) for _ in range(20)])
    done = rig.run(*ONCE, "--horizon", "30s")
    assert (done.returncode, len(rig.stored_ids())) == (ExitCode.USAGE, 20)
    assert "horizon (30s) must be at least 1m longer than cutoff (1m)" in done.stderr
    assert "use a shorter cutoff, or a longer horizon" in done.stderr

    listen(rig, tmp_path)
    process = rig.start("run", "--endpoint", "Sales", "--horizon", "3m")
    wait_until(lambda: rig.has_lane() and listens(rig), what="a daemon that works")
    answer = told(rig, command="set", setting="cutoff", value="1h")
    assert "horizon (3m) must be at least 1m longer than cutoff (1h)" in str(answer)
    rig.must("set", "cutoff", "10m", codes=(ExitCode.PREFLIGHT_REFUSED,))
    rig.stop(process)
    assert len(rig.stored_ids()) == 20
