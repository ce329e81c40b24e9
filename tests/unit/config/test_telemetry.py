"""Tests of ``migrator.config.telemetry``."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from migrator.config import Telemetry


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:4318", "https://[::1]:4318/otlp", ""])
def test_an_address_is_taken_as_it_is(endpoint: str) -> None:
    """Empty leaves it to the environment."""
    assert Telemetry.model_validate({"endpoint": endpoint}).endpoint == (endpoint or None)


@pytest.mark.parametrize(
    "endpoint",
    ["127.0.0.1:4318", "ftp://host", "http://", "http://[::1", "http://u:p@host", "http://h?k=v"],
)
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    """Nor may it hold a secret: settings are shown."""
    with pytest.raises(ValidationError, match="without a user"):
        Telemetry(endpoint=endpoint)
