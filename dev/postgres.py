"""A private PostgreSQL server: own port, own data, loopback only."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import psycopg

from dev.processes import (
    LOOPBACK,
    PrivateServer,
    ServerFailedError,
    ServerMissingError,
    free_port,
    wait_until,
    with_parent,
)

RestartMode = Literal["fast", "immediate"]
STOP_SIGNALS: Mapping[RestartMode, signal.Signals] = {
    "fast": signal.SIGINT,  # open transactions are rolled back, then a checkpoint
    "immediate": signal.SIGQUIT,  # as after a crash: recovery from the log at the next start
}


def find_postgres() -> Path:
    """Return the folder of the newest PostgreSQL programs, or raise ``ServerMissingError``."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    found = shutil.which("postgres")
    if debian:
        return debian[-1].parent
    if found:
        return Path(found).resolve().parent
    raise ServerMissingError(
        "PostgreSQL is not installed here (no program named postgres was found)"
    )


def _version(program: Path) -> float:
    number = re.search(r"/(\d+(?:\.\d+)?)/bin/", str(program))
    return float(number.group(1)) if number else 0.0


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; say who shall run it then."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class PostgresServer(PrivateServer):
    """One PostgreSQL server that trusts everybody on the loopback interface.

    Writes are not forced to disk unless ``fsync`` is set: tests survive a killed *server*, not a
    power failure.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        fsync: bool = False,
        settings: Mapping[str, str] | None = None,
        has_own_clock: bool = False,
    ) -> None:
        """Prepare a server; with *has_own_clock*, ``set_clock`` shifts its wall clock."""
        find_postgres()  # or it is missing
        self._compiler = shutil.which("cc") if has_own_clock else None
        if has_own_clock and self._compiler is None:
            raise ServerMissingError("a clock of its own needs a C compiler (no program named cc)")
        super().__init__("postgres", data_dir, name="PostgreSQL")
        self.port = free_port()
        self.user = "postgres"
        self._os_user = _unprivileged_user()
        self._cluster = self.data_dir / "data"
        self._settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(self.data_dir),
            "max_connections": "200",
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "shared_buffers": "128MB",
            "dynamic_shared_memory_type": "mmap",  # in the data folder: a killed server leaves none
            "timezone": "UTC",
            **(settings or {}),
        }

    # --- life -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or start again after ``stop`` or ``kill``; return when clients are welcome."""
        self._launch()
        self._process.wait_ready(self._ready)
        return self

    def stop(self, mode: RestartMode = "fast") -> None:
        """End the server; ``immediate`` leaves it as a crash would."""
        self._process.stop(number=STOP_SIGNALS[mode], seconds=60)

    def restart(self, mode: RestartMode = "fast") -> None:
        """End the server in the given manner and start it again."""
        self.stop(mode)
        self.start()

    def set_clock(self, ahead_s: float) -> None:
        """Let the server's wall clock be so many seconds ahead; it counts at once."""
        with self._clock_offset.open("r+b", buffering=0) as file:
            file.write(struct.pack("l", round(ahead_s * 1e9)))

    # --- databases --------------------------------------------------------------------------

    def url(self, database: str = "postgres") -> str:
        """Return the SQLAlchemy address of a database."""
        return f"postgresql+psycopg://{self.user}@{LOOPBACK}:{self.port}/{database}"

    def create_database(self, name: str | None = None, template: str | None = None) -> str:
        """Create a database, with a name nobody else uses unless one is given; return its name."""
        name = name or f"test_{secrets.token_hex(6)}"
        suffix = f' TEMPLATE "{template}"' if template else ""
        self._administer(f'CREATE DATABASE "{name}"{suffix}')
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, and whoever is still connected to it."""
        self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _administer(self, statement: str) -> None:
        """Run one statement beside all databases: the start of psql takes longer than most."""
        address = f"host={LOOPBACK} port={self.port} user={self.user} dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement; return the rows as lines, columns parted by ``|``."""
        done = self._run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statement)
        return done.strip()

    # --- how it is set up -------------------------------------------------------------------

    def _launch(self) -> None:
        if not (self._cluster / "PG_VERSION").exists():
            self._initdb()
        command = [str(find_postgres() / "postgres"), "-D", str(self._cluster), *self._options()]
        env = {**self._environment(), **self._clock()}
        self._process.start(command, env=env, cwd=self.data_dir, user=self._os_user)

    @property
    def _clock_offset(self) -> Path:
        return self.data_dir / "clock-offset"

    def _clock(self) -> Mapping[str, str]:
        """Return what a server with its own clock is started with; it is compiled when needed."""
        if self._compiler is None:
            return {}
        library = self.data_dir / "clock.so"
        if not library.exists():
            source = str(Path(__file__).with_name("clock.c"))
            command = [
                self._compiler,
                "-O1",
                "-shared",
                "-fPIC",
                "-o",
                str(library),
                source,
                "-ldl",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ServerFailedError(f"{source}: {done.stderr}")
            self._clock_offset.write_bytes(struct.pack("l", 0))
        return {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self._clock_offset)}

    def _options(self) -> list[str]:
        return [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]

    def _initdb(self) -> None:
        if self._os_user:
            self.data_dir.chmod(0o700)
            shutil.chown(self.data_dir, self._os_user, pwd.getpwnam(self._os_user).pw_gid)
        self._run(
            "initdb", "-D", str(self._cluster), "-U", self.user, "-A", "trust", "-E", "UTF8",
            "--locale=C", "--no-sync", "--no-instructions",
        )  # fmt: skip

    def _run(self, program: str, *args: str) -> str:
        command = with_parent([str(find_postgres() / program), *args], user=self._os_user)
        env = self._environment()
        done = subprocess.run(
            command, env=env, cwd=self.data_dir, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServerFailedError(f"{program}: {done.stderr or done.stdout}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "LC_ALL": "C",
            "PGHOST": LOOPBACK,
            "PGPORT": str(self.port),
            "PGUSER": self.user,
        }

    def _ready(self) -> bool:
        try:
            self._run("pg_isready", "-q", "-d", "postgres")
        except ServerFailedError:
            return False
        return True


class PostgresStandby(PostgresServer):
    """A hot standby of another private server; asynchronous, as that is told of no standby."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__()
        self._primary = primary

    def fall_behind(self) -> None:
        """Catch up with the primary once more, and receive nothing from it any more."""
        written = self._primary.psql("SELECT pg_current_wal_flush_lsn()")
        wait_until(
            lambda: self.psql(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") == "t",
            what="a standby that has all there is",
        )
        self.psql("ALTER SYSTEM SET primary_conninfo = ''")
        self.psql("SELECT pg_reload_conf()")
        wait_until(
            lambda: self.psql("SELECT count(*) FROM pg_stat_wal_receiver") == "0",
            what="a standby that receives nothing",
        )

    def promote(self) -> None:
        """Become a primary with what was received so far."""
        self.psql("SELECT pg_promote()")

    def _initdb(self) -> None:
        super()._initdb()  # for the owner of the folder
        self._cluster.rename(self._cluster.with_name("unused"))
        self._run(
            *("pg_basebackup", "-D", str(self._cluster), "-h", LOOPBACK),
            *("-p", str(self._primary.port), "-U", self._primary.user, "-R", "-c", "fast"),
        )
