"""JSON documents: what ``--json`` prints and what a daemon answers, each a model.

A model is the one source of its document: of the values, of the schema that ``dev/docs`` publishes,
and of what a page shows. The names of its fields are public; so are those of a dataclass in it.
Models that share a title are forms of one document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from migrator.nservicebus.timeouts import Count as Count


def sorted_by_name(found: Mapping[Any, int]) -> dict[Any, int]:
    """Return *found* in the order of its names."""
    return dict(sorted(found.items()))


Counts = Annotated[dict[str, Count], BeforeValidator(sorted_by_name)]


class Part(BaseModel):
    """A part of a document; made of an object, it takes the attributes that it has fields for."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class Document(Part):
    """A document; its title is ``migrator/<name>/1``, its docstring says what writes it."""

    @property
    def values(self) -> dict[str, object]:
        """What is written, the name of the document first."""
        return {"schema": self.model_config["title"], **self.model_dump(by_alias=True)}
