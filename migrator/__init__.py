"""Move NServiceBus delayed messages from a legacy database into RabbitMQ's native delays.

The command line (``migrator --help``) is the public interface; the modules below
are laid out in one direction, from ``cli`` down to ``domain`` (see ``pyproject.toml``).
"""

from typing import Final

__version__: Final = "0.1.0"
