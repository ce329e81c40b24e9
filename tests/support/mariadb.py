"""MariaDB, or MySQL in its place: with ``TEST_ON_MYSQL`` set, tests of the one run on the other.

``./dev/test --full`` does both; CI runs MariaDB only.
"""

from __future__ import annotations

import os
from typing import Final

from dev.servers import MariadbServer, MysqlServer

IS_MYSQL: Final = bool(os.environ.get("TEST_ON_MYSQL"))
KIND: Final = "mysql" if IS_MYSQL else "mariadb"
"""What the server is called in the names of tests."""


new_server: type[MariadbServer] = MysqlServer if IS_MYSQL else MariadbServer
