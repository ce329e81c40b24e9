"""The schemas of JSON documents are what they say, and know every field that is written.

What the program writes is held to them wherever a test sees it: ``tests.support.documents``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from dev.reference.schemas import schemas as generated
from tests.support.documents import SCHEMAS, check_document, check_output


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every part that describes an object by its fields."""
    if isinstance(schema, dict):
        if "properties" in schema and "type" in schema:
            yield schema
        for each in schema.values():
            yield from objects(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects(each)


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_knows_all_fields(path: Path) -> None:
    """It is valid, is called as its document, and a field that it lacks is refused everywhere."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["title"].replace("/", "-") == path.stem
    found = list(objects(schema))
    named = [each["properties"]["schema"] for each in found if "schema" in each["properties"]]
    assert {each["const"] for each in named} == {schema["title"]}
    assert all(each["additionalProperties"] is False for each in found)


def test_every_document_has_a_schema_as_its_model_says_and_no_schema_is_left_over() -> None:
    """What ``dev/docs`` would write is what is published."""
    published = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.json")}
    assert published == generated()


@pytest.mark.parametrize(
    "document",
    [
        {"schema": "migrator/live/2", "silent_s": {}, "is_alive": True},
        {"schema": "migrator/live/1", "silent_s": {}, "is_alive": True, "new": 1},
        {"schema": "migrator/live/1", "silent_s": {}},
        {"schema": "migrator/live/1", "silent_s": {"lane": "1 s"}, "is_alive": True},
    ],
    ids=["unknown", "one field more", "one field less", "another type"],
)
def test_what_is_not_as_its_schema_says_is_found(document: dict[str, Any]) -> None:
    """In whatever a test prints with --json."""
    with pytest.raises(AssertionError, match="live"):
        check_document(document)
    with pytest.raises(AssertionError, match="live"):
        check_output(["--json"], json.dumps(document), "")
    with pytest.raises(AssertionError, match="live"):
        check_output(["--json"], "", "a line\n" + json.dumps(document))
