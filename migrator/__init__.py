"""Move NServiceBus delayed messages from a legacy database into RabbitMQ's native delays.

The command line (``migrator --help``) is the public interface. Imports go one way, from ``cli``
down to ``errors`` (contracts in ``pyproject.toml``); docs/architecture.md says what is where.
"""

__version__ = "0.1.0"
