"""What can be set about RavenDB."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from migrator.config.ravendb import RavenDb


def test_nothing_needs_to_be_set_for_the_usual_collections() -> None:
    """Both conventions of the past; nobody owns what names no owner."""
    given = RavenDb()
    assert given.collections == ("TimeoutDatas", "TimeoutData")
    assert (given.prefixes, given.unowned, given.version) == ((), None, "auto")


def test_an_empty_owner_is_none() -> None:
    """An environment variable cannot be taken away, only emptied."""
    assert RavenDb.model_validate({"unowned": ""}).unowned is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cert_file": "c.pem"}, "must have both cert_file and key_file, or neither"),
        ({"collections": []}, "must name at least one"),
        ({"prefixes": [""]}, "at least 1 character"),
        ({"version": "5"}, "'auto', '3.5' or '4'"),
        ({"request_timeout": "0s"}, "must be longer than 0s"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, object], said: str) -> None:
    """An empty prefix would list the whole database in another order."""
    with pytest.raises(ValidationError, match=said):
        RavenDb.model_validate(given)
