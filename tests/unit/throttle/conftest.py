"""The daemon's threads are waited for as in the tests of the service."""

from tests.unit.service.conftest import patience, wait_for

__all__ = ["patience", "wait_for"]
