"""Move NServiceBus delayed messages from a legacy database into RabbitMQ's native delays.

The command line (``migrator --help``) is the public interface; the modules below
are laid out in one direction, from ``cli`` down to ``domain`` (see ``pyproject.toml``).
"""

__version__ = "0.1.0"
