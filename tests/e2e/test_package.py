"""The Debian package on a bare machine: a root of debootstrap that systemd boots in namespaces."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pytest
import sqlalchemy as sa

from dev.servers import wait_until
from migrator import __version__
from migrator.errors import DISTRIBUTION
from tests.support import cannot_run

ROOT: Final = Path(__file__).resolve().parents[2]
INCLUDED: Final = "procps,python3,systemd"
_BOOT: Final = """
mount --bind "$0" "$0" && cd "$0"
mount -t proc proc proc && mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run && mount -t tmpfs -o mode=755 tmpfs dev
for each in null zero full random urandom tty; do
    touch dev/$each && mount --bind /dev/$each dev/$each
done
mkdir dev/shm && ln -s pts/ptmx dev/ptmx && touch dev/console && mount --bind "$1" dev/console
mkdir run/old && pivot_root . run/old && umount --lazy run/old && mount --make-rshared /
export container=migrator-test
exec /lib/systemd/systemd --log-target=console --unit=multi-user.target
"""
"""What a container runtime does before it starts the first process."""
_OWN: Final = ("dev", "proc", "run", "sys", "tmp", "var/lib/systemd", "var/log", "var/cache")
"""Folders in which a running machine keeps what no package brought."""


WITH_IT: Final = {
    "usr/share/man/man1/migrator.1.gz",
    "usr/share/bash-completion/completions/migrator",
    "usr/share/zsh/vendor-completions/_migrator",
    "usr/share/fish/vendor_completions.d/migrator.fish",
}


class Machine:
    """A copy of a bare root, booted by its own systemd; it shares our network."""

    def __init__(self, bare: Path, folder: Path) -> None:
        """Copy *bare* into *folder*."""
        self.root, self._console = folder / "root", folder / "console"
        subprocess.run(["cp", "-a", bare, self.root], check=True)
        self._console.touch()

    def __enter__(self) -> Self:
        """Boot it, and wait until systemd has started what belongs to it."""
        spaces = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--propagation", "private"]
        boot = ["sh", "-ec", _BOOT, str(self.root), str(self._console)]
        self._process = subprocess.Popen(
            ["unshare", *spaces, "--fork", "--kill-child", *boot], stdin=subprocess.DEVNULL
        )
        wait_until(self._is_up, what="systemd in the bare root")
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and all its processes with the first one."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self._console.read_text(errors="replace")
        said = self.run("systemctl", "is-system-running", check=False)
        return said.strip() in {"running", "degraded"}

    def run(self, *command: str, check: bool = True) -> str:
        """Return what *command* says in there, as root; it must end well if *check*."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        first = children.read_text().split()
        if not first:
            return ""
        enter = ["nsenter", "--target", first[0], "--all", "--root", "--wd", *command]
        done = subprocess.run(
            enter,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "SYSTEMD_COLORS": "0",
                "LC_ALL": "C.UTF-8",
            },
            text=True,
            timeout=200,
            check=False,
        )
        if check and done.returncode != 0:
            log = self.run("journalctl", "--no-pager", "--unit", "migrator*", check=False)
            pytest.fail(f"{command}: {done.stdout}\n{log}")
        return done.stdout

    def shown(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", "--property", name, unit).strip()

    def files(self) -> set[str]:
        """Return every file and folder that a package may have brought."""
        found: set[str] = set()
        for folder, folders, names in os.walk(self.root):
            at = Path(folder).relative_to(self.root)
            folders[:] = [name for name in folders if str(at / name) not in _OWN]
            found.update(str(at / name) for name in (*folders, *names))
        return found

    def write(self, name: str, text: str) -> None:
        """Write a file of /etc/migrator."""
        (self.root / "etc" / "migrator" / name).write_text(text)


@pytest.fixture(scope="module")
def bare() -> Path:
    """A root with nothing but Debian's Python and systemd, made once for this checkout."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        cannot_run("a bare root wants root and debootstrap (apt-get install debootstrap)")
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    if found is None:
        cannot_run("this is no Debian or Ubuntu")
    bare = ROOT / ".roots" / f"bare-{found[1]}"
    if not (bare / "debootstrap-done").exists():
        which = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
        mirrors = subprocess.run([*which, "Origin: Debian"], stdout=subprocess.PIPE, text=True)
        if not mirrors.stdout:
            cannot_run("apt knows no Debian mirror here")
        shutil.rmtree(bare, ignore_errors=True)
        make = ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", found[1], bare]
        subprocess.run([*make, mirrors.stdout.split()[0]], check=True, stdout=subprocess.DEVNULL)
        (bare / "debootstrap-done").touch()
    return bare


@pytest.fixture(scope="module")
def package(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built just now; *bare* is asked for first, for without it nothing is built."""
    return built(tmp_path_factory.mktemp("package"))


def built(folder: Path) -> Path:
    """Build the package into *folder*."""
    subprocess.run([ROOT / "dev" / "package", "--deb", folder], check=True, timeout=1500)
    (path,) = folder.glob("*.deb")
    return path


@pytest.fixture
def machine(bare: Path, package: Path, tmp_path: Path) -> Iterator[Machine]:
    """A booted machine with the package in /tmp; skipped where no namespaces are to be had."""
    made = Machine(bare, tmp_path)
    shutil.copy(package, made.root / "root" / "migrator.deb")
    with made:
        yield made


def handed_over(database: str) -> int:
    """Return how many rows the ledger calls handed over."""
    engine = sa.create_engine(database)
    query = "SELECT coalesce(sum(size), 0) FROM migrator.batch WHERE state = 'handed_over'"
    with engine.connect() as connection:
        found: int = connection.execute(sa.text(query)).scalar_one()
    engine.dispose()
    return found


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_package_that_is_built_again_is_the_same_file(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, later and by way of another temporary folder; so its sum can be published."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    again = built(tmp_path / "again")
    assert again.name == package.name
    assert again.read_bytes() == package.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_package_is_installed_run_upgraded_and_purged(
    machine: Machine, database: str, vhost: Any
) -> None:
    """By systemd itself, as docs/systemd.md says; a purge leaves what was there before."""
    before = machine.files()
    machine.run("dpkg", "--install", "/root/migrator.deb")
    assert machine.run("migrator", "--version") == f"migrator {__version__}\n"
    for name in ("migrator.service", "migrator@Sales.service"):
        assert machine.run("systemd-analyze", "verify", name) == ""
    assert machine.files() >= WITH_IT
    said = machine.run(
        "bash", "-c", "source /usr/share/bash-completion/completions/migrator; complete"
    )
    assert " migrator" in said
    assert machine.shown("migrator", "ActiveState") == "inactive"

    machine.write("store-url", database)
    machine.write("broker-url", vhost.amqp_url)
    machine.write("management-url", vhost.node.management_url)
    machine.write(
        "migrator.toml",
        '[store]\nurl_file = "store-url"\n[broker]\nurl_file = "broker-url"\n'
        'management_url_file = "management-url"\n[handover]\ncutoff = "0s"\n'
        '[[endpoints]]\nname = "Sales"\n',
    )
    machine.run("systemd-tmpfiles", "--create", "migrator.conf")
    by_hand = ("migrator", "--config", "/etc/migrator/migrator.toml")
    vhost.node.api("PUT", f"queues/{vhost.name}/Sales", {"durable": True})
    machine.run(*by_hand, "db", "upgrade")
    machine.run(
        *(*by_hand, "seed", "--yes", "--endpoint", "Sales", "--count", "50"),
        *("--due-from", "1h", "--due-to", "30d"),
    )
    machine.run(*by_hand, "delays", "create")

    machine.run("systemctl", "enable", "--now", "migrator")  # which waits for READY=1
    wait_until(lambda: handed_over(database) == 50, what="all handed over")
    first = machine.shown("migrator", "MainPID")
    machine.run("dpkg", "--install", "/root/migrator.deb")  # the same once more is an upgrade
    wait_until(
        lambda: machine.shown("migrator", "ActiveState") == "active",
        what="the service after the upgrade",
    )
    assert machine.shown("migrator", "MainPID") not in {"0", first}
    machine.run("systemctl", "stop", "migrator")
    assert machine.shown("migrator", "Result") == "success"
    machine.run("systemctl", "start", "migrator")

    machine.run("dpkg", "--purge", DISTRIBUTION)
    assert machine.run("systemctl", "is-active", "migrator", check=False) == "inactive\n"
    users = {"etc/group-", "etc/gshadow-", "etc/passwd-", "etc/shadow-"}
    assert machine.files() - before <= users
    assert before - machine.files() == set()
