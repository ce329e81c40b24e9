"""Tools the tests share: servers' stand-ins, a proxy that pulls the cable, a browser."""

import os
from typing import NoReturn

import pytest


def cannot_run(why: str) -> NoReturn:
    """Skip the test with the reason; fail with it where ``CI`` promises all that tests need."""
    if os.environ.get("CI"):
        pytest.fail(f"{why} (and CI is set, so this is no reason to skip)")
    pytest.skip(why)
