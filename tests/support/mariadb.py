"""MariaDB, or MySQL in its place: with ``TEST_ON_MYSQL`` set, tests of the one run on the other.

``./dev/test --full`` does both; CI runs MariaDB only.
"""

from __future__ import annotations

import os
from typing import Any, Final

from dev.servers import MariadbServer, new_mariadb_server, new_mysql_server

IS_MYSQL: Final = bool(os.environ.get("TEST_ON_MYSQL"))
KIND: Final = "mysql" if IS_MYSQL else "mariadb"
"""What the server is called in the names of tests."""


def new_server(**options: Any) -> MariadbServer:
    """Return a server, not yet started; takes the options of ``MariadbServer``."""
    return new_mysql_server(**options) if IS_MYSQL else new_mariadb_server(**options)
