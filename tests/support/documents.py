"""Holds what the program prints as JSON, and what a daemon answers, to the published schemas.

Rules of this file: every document that a test sees is checked, whatever the test is about; one
without a schema is an error, and so is a field that its schema does not know. With
``TEST_DOCUMENTS`` a folder gets an empty file for each schema that was met, so that ``dev/test``
can name those of which no test made a document.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from jsonschema.exceptions import best_match  # type: ignore[import-untyped]  # nor has this

SCHEMAS: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"


@cache
def schemas() -> Mapping[str, tuple[Path, Draft202012Validator]]:
    """Return file and validator of each schema, by the name of its document."""
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")}
    return {each["title"]: (path, Draft202012Validator(each)) for path, each in found.items()}


def check_document(document: Mapping[str, Any]) -> None:
    """Demand that *document* is as its schema says."""
    name = str(document.get("schema"))
    assert name in schemas(), f"no schema in {SCHEMAS} for {name}"
    path, validator = schemas()[name]
    wrong = best_match(validator.iter_errors(document))
    assert wrong is None, f"{path.name}, {wrong.json_path}: {wrong.message}"
    if folder := os.environ.get("TEST_DOCUMENTS"):
        (Path(folder) / path.name).touch()


def check_output(arguments: Any, out: str, err: str) -> None:
    """Demand it of all that a call of the program wrote, if it was asked for JSON."""
    if "--json" not in arguments:
        return
    if out.startswith("{"):
        is_one = out.startswith("{\n")
        for each in [out] if is_one else out.splitlines():  # --watch writes one per line
            check_document(json.loads(each))
    last = err.splitlines()[-1:]
    if last and last[0].startswith('{"schema"'):  # the other lines are the log's
        check_document(json.loads(last[0]))


def check_answer(answer: httpx.Response) -> None:
    """Demand it of what a daemon answers; for the hooks of a client."""
    if answer.headers.get("content-type") == "application/json":
        check_document(json.loads(answer.read()))


HOOKS: Final = {"response": [check_answer]}
"""For a client that is no asynchronous one."""
