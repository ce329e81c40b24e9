"""Log lines are looked at as in the tests of the service."""

from tests.unit.service.conftest import lines, patience

__all__ = ["lines", "patience"]
