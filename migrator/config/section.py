"""What all sections of the settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, and without keys nobody knows; defaults are checked like given values."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def none_when_empty(value: object) -> object:
    """Return None for an empty text, which says in a file or a variable that nothing is set."""
    return None if value == "" else value
