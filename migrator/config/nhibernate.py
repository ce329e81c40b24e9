"""What can be set about NHibernate's table, which a naming strategy may have renamed."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from migrator.config.section import Section

_COLUMNS: Final = ("Id", "Destination", "SagaId", "State", "Endpoint", "Time", "Headers")


class NHibernate(Section):
    """NHibernate: how the table of all endpoints is called, when the defaults do not say."""

    table: str = Field(
        default="TimeoutEntity", min_length=1, description="the table, in any letter case"
    )
    columns: dict[str, str] = Field(
        default={}, description="names of columns, by those of NServiceBus, where they differ"
    )

    @field_validator("columns")
    @classmethod
    def _are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted({*value} - {*_COLUMNS}):
            names = ", ".join(_COLUMNS)
            raise ValueError(f"must name columns among {names}; not {', '.join(unknown)}")
        if not all(name.strip() for name in value.values()):
            raise ValueError("must name columns, none empty")
        return value
