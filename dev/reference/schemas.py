"""The page of JSON documents, and the schema of each: from its model."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from operator import or_
from pkgutil import walk_packages
from typing import Any, Final, get_args, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

import migrator
from dev.reference.markdown import page, table
from migrator.config.values import meanings
from migrator.documents import Document
from migrator.errors import ErrorAnswer, ErrorLine
from migrator.status.document import DOCUMENTS
from migrator.web.control import Answer, Liveness, Readiness

SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"


LIGHT: Final = (Answer, Liveness, Readiness, ErrorAnswer, ErrorLine)
"""Documents of verbs that have no time for the models' library."""


class _Generator(GenerateJsonSchema):
    """Without titles and defaults of fields; with what their docstrings say."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().model_schema(schema)
        if issubclass(schema["cls"], Document):
            _name(found)
        return _completed(found, schema["cls"])

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().typed_dict_schema(schema)
        return _described(found | {"additionalProperties": False}, schema["cls"])

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().dataclass_schema(schema)
        if schema["cls"] in LIGHT:
            _name(found)
        return _completed(found, schema["cls"])


def _name(found: JsonSchemaValue) -> None:
    name = {"type": "string", "const": found["title"]}
    found["properties"] = {"schema": name} | found["properties"]


def _completed(found: JsonSchemaValue, model: type) -> JsonSchemaValue:
    """Return *found* with the meanings of its fields; each of them is always written."""
    found |= {"required": list(found["properties"]), "additionalProperties": False}
    return _described(found, model)


def _described(found: JsonSchemaValue, model: type) -> JsonSchemaValue:
    bases = (each for each in getattr(model, "__orig_bases__", ()) if isinstance(each, type))
    for each in (*bases, model):  # a TypedDict has none of its bases in its MRO
        for name, text in meanings(each).items():
            if name in found["properties"]:
                found["properties"][name]["description"] = re.sub(r"\bNone\b", "null", text)
    return found


def documents() -> Mapping[str, Sequence[Any]]:
    """Return every document by its title, each with its forms."""
    for module in walk_packages(migrator.__path__, "migrator."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    forms = defaultdict[str, list[Any]](list)
    for model in _below(Document):
        if title := model.model_config.get("title"):
            forms[title].append(model)
    for each in LIGHT:
        forms[each.__pydantic_config__["title"]].append(each)
    for read_without_pydantic in DOCUMENTS:
        (title,) = get_args(get_type_hints(read_without_pydantic)["schema"])
        forms[title].append(read_without_pydantic)
    return dict(sorted(forms.items()))


def _below(model: type[Document]) -> Iterator[type[Document]]:
    for each in model.__subclasses__():
        yield each
        yield from _below(each)


def schemas() -> Mapping[str, str]:
    """Return the text of every schema by its file name."""
    return {
        f"{title.replace('/', '-')}.json": json.dumps(_schema(title, forms), indent=2) + "\n"
        for title, forms in documents().items()
    }


def _schema(title: str, forms: Sequence[Any]) -> Mapping[str, object]:
    found = TypeAdapter(reduce(or_, forms)).json_schema(
        mode="serialization", schema_generator=_Generator
    )
    written_by = " ".join(str(forms[-1].__doc__).split()).rstrip(".")
    named = {"$schema": SCHEMA, "title": title, "description": written_by}
    return named | found | named


def listed() -> str:
    """Return the page: every document, what writes it, and where its schema is."""
    found = {name: json.loads(text) for name, text in sorted(schemas().items())}
    return page(
        "JSON documents",
        "What `--json` prints and a daemon answers: one object each, whose `schema` names it. The "
        "schemas are JSON Schema 2020-12; tests hold every document that the program writes in "
        "them to its schema.\n"
        "A field that is not in the schema is not there; names that end in `_s` are seconds, "
        "times are ISO 8601 in UTC, and null is what nobody knows, unless the schema says more.",
        table(
            ("document", "written by"),
            (
                (f"[`{schema['title']}`](schemas/{name})", schema["description"])
                for name, schema in found.items()
            ),
        ),
    )
