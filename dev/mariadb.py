"""A private MariaDB server: own port, own data, loopback only."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from dev.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailedError,
    ServerMissingError,
    free_port,
    with_parent,
)


def find_mariadb() -> Path:
    """Return the server program, or raise ``ServerMissingError``."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise ServerMissingError(
            "MariaDB is not installed here (no program named mariadbd was found)"
        )
    return Path(found)


def _unprivileged_user() -> str | None:
    """MariaDB refuses to run as root; say who shall run it then."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "mysql" if "mysql" in names else "nobody"


class MariadbServer(PrivateServer):
    """One MariaDB server that trusts everybody on the loopback interface.

    A commit is handed to the operating system and not forced to disk, unless *settings* say so:
    tests survive a killed *server*, not a power failure. The server's own time zone is an odd
    one, on purpose.
    """

    kind, title = "mariadb", "MariaDB"

    def __init__(
        self, *, data_dir: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._program = self.find()
        super().__init__(self.kind, data_dir, name=self.title)
        self.port = free_port()
        self.user = "root"
        self._os_user = _unprivileged_user()
        self._data = self.data_dir / "data"
        self._settings = {
            "bind_address": LOOPBACK,
            "port": str(self.port),
            "socket": str(self.data_dir / "server.sock"),
            "tmpdir": str(self.data_dir),  # a server that starts removes what others have in theirs
            "pid_file": str(self.data_dir / "server.pid"),
            "skip_name_resolve": "ON",
            "default_time_zone": "+05:45",
            "max_connections": "200",
            "performance_schema": "OFF",
            "innodb_buffer_pool_size": "128M",
            "innodb_flush_log_at_trx_commit": "2",
            "innodb_doublewrite": "OFF",
            "innodb_fast_shutdown": "2",
            **self.own_settings(),
            **(settings or {}),
        }

    def find(self) -> list[str]:
        """Return how the program is called, without options; or raise ``ServerMissingError``."""
        return [str(find_mariadb())]

    def client(self) -> list[str]:
        """Return how the program that runs statements is called."""
        return ["mariadb"]

    def own_settings(self) -> Mapping[str, str]:
        """Return what only this kind of server knows."""
        return {
            "innodb_log_file_size": "64M",
            "debug_no_sync": "ON",  # tables are made and dropped twice as fast
        }

    # --- life -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        if not (self._data / "mysql").exists():
            self._install()
        command = [*self._program, "--no-defaults", *self._options()]
        self._process.start(command, env=os.environ, cwd=self.data_dir, user=self._os_user)
        self._process.wait_ready(self._ready)
        return self

    # --- databases --------------------------------------------------------------------------

    def url(self, database: str = "mysql") -> str:
        """Return the SQLAlchemy address of a database."""
        return f"mysql+pymysql://{self.user}@{LOOPBACK}:{self.port}/{database}"

    def create_database(self, name: str | None = None) -> str:
        """Create a database, with a name nobody else uses unless one is given; return its name."""
        name = name or f"test_{secrets.token_hex(6)}"
        self.sql(f"CREATE DATABASE `{name}`")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database; waits for transactions that are still open in it."""
        self.sql(f"DROP DATABASE IF EXISTS `{name}`")

    def sql(self, statement: str, database: str = "mysql") -> str:
        """Run statements; return the rows as lines, columns parted by tabs."""
        line = [*self.client(), "--no-defaults", "--batch", "--skip-column-names", "--protocol=tcp"]
        line += [f"--host={LOOPBACK}", f"--port={self.port}", f"--user={self.user}", database]
        return self._run(*line, stdin=statement).strip()

    # --- how it is set up -------------------------------------------------------------------

    def _options(self) -> list[str]:
        settings = {"datadir": str(self._data), **self._settings}
        return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]

    def _install(self) -> None:
        self._data.mkdir(exist_ok=True)
        if self._os_user:
            self.data_dir.chmod(0o700)
            group = pwd.getpwnam(self._os_user).pw_gid
            for folder in (self.data_dir, self._data):
                shutil.chown(folder, self._os_user, group)
        self._run(*self.installing(), user=self._os_user)

    def installing(self) -> list[str]:
        """Return what makes the system's tables in the empty data folder."""
        return [
            "mariadb-install-db",
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-name-resolve",
            "--skip-test-db",
            f"--datadir={self._data}",
            f"--tmpdir={self.data_dir}",
            f"--innodb-log-file-size={self._settings['innodb_log_file_size']}",
        ]

    def _ready(self) -> bool:
        try:
            self.sql("SELECT 1")
        except ServerFailedError:
            return False
        return True

    def _run(self, program: str, *args: str, user: str | None = None, stdin: str = "") -> str:
        done = subprocess.run(
            with_parent([program, *args], user=user),
            cwd=self.data_dir,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerFailedError(f"{program}: {done.stderr or done.stdout}")
        return done.stdout
