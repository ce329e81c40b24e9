"""A private MySQL server: own port, own data, loopback only; the program is in ``.mysql``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dev.mariadb import MariadbServer
from dev.processes import ServerMissingError

_FOLDER: Final = Path(__file__).resolve().parent.parent / ".mysql"
_ROOT_ON_LOOPBACK: Final = """\
CREATE USER root@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
"""


def find_mysql() -> Path:
    """Return the folder that the program was unpacked in, or raise ``ServerMissingError``."""
    if not (_FOLDER / "stamp").exists():
        raise ServerMissingError("MySQL is not here (dev/test --full puts it into .mysql)")
    return _FOLDER / "usr"


class MysqlServer(MariadbServer):
    """One MySQL server, which stands in for a MariaDB one wherever tests are told to take it.

    It is run with the libraries it was built with, which are newer than the machine's.
    """

    kind, title = "mysql", "MySQL"

    def find(self) -> list[str]:
        """Return how the program is called, without options; or raise ``ServerMissingError``."""
        return _called(find_mysql(), "sbin/mysqld")

    def client(self) -> list[str]:
        """Return how the program that runs statements is called."""
        return _called(find_mysql(), "bin/mysql")

    def own_settings(self) -> Mapping[str, str]:
        """Return what only this kind of server knows."""
        folder = find_mysql()
        return {
            "basedir": str(folder),
            "plugin_dir": str(folder / "lib/mysql/plugin"),
            "secure_file_priv": "NULL",
            "mysqlx": "OFF",
            "disable_log_bin": "ON",
            "innodb_redo_log_capacity": "128M",
        }

    def installing(self) -> list[str]:
        """Return what makes the system's tables in the empty data folder."""
        init = self.data_dir / "init.sql"
        init.write_text(_ROOT_ON_LOOPBACK)
        return [
            *self._program,
            "--no-defaults",
            "--initialize-insecure",
            f"--init-file={init}",
            *self._options(),
            "--innodb-fast-shutdown=1",  # else it does not start from what was made
        ]


def _called(folder: Path, program: str) -> list[str]:
    libraries = folder / "lib/x86_64-linux-gnu"
    loader = libraries / "ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(libraries), str(folder / program)]
