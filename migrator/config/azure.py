"""What can be set about timeouts in Azure Storage, by the vendor's own names and defaults."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator

from migrator.config.section import Section
from migrator.stores.azure.partitions import parse_scope

_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_CONTAINER: Final = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(-[a-z0-9]+)*")


class Azure(Section):
    """Azure Storage Persistence: where its timeouts are, when the defaults do not say."""

    table: str = Field(
        default="TimeoutDataTableName", description="the timeouts' table (TimeoutDataTableName)"
    )
    container: str = Field(
        default="timeoutstate", description="the bodies' container (TimeoutStateContainerName)"
    )
    partition_key_scope: str = Field(
        default="yyyyMMddHH", description="format of time entries' partition keys"
    )
    requests: int = Field(default=32, ge=1, le=256, description="requests under way at a time")

    @field_validator("table")
    @classmethod
    def _names_a_table(cls, value: str) -> str:
        if not _TABLE.fullmatch(value):
            raise ValueError("must be 3 to 63 letters and digits, a letter first")
        return value

    @field_validator("container")
    @classmethod
    def _names_a_container(cls, value: str) -> str:
        if not _CONTAINER.fullmatch(value):
            raise ValueError("must be 3 to 63 lower case letters, digits and single hyphens")
        return value

    @field_validator("partition_key_scope")
    @classmethod
    def _is_a_scope(cls, value: str) -> str:
        parse_scope(value)
        return value
