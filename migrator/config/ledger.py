"""What can be set about the ledger: where it is, and what is kept of settled rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from migrator.config.cron import Cron, parse_rhythm
from migrator.config.quantities import SOME_TIME, Duration
from migrator.config.section import Section, none_when_empty

_NIGHTLY: Final = "0 3 * * *"


class Ledger(Section):
    """The ledger: its database, if the store is none, and how long settled rows are kept."""

    url: SecretStr | None = Field(
        default=None, description="database URL of the ledger; for a SQL store leave it empty"
    )
    url_file: Path | None = Field(
        default=None, description="file that holds the URL; a bare name is a systemd credential"
    )
    purge_after: Annotated[
        Annotated[Duration, SOME_TIME] | None, BeforeValidator(none_when_empty)
    ] = Field(
        default=None,
        description="rows settled and due longer ago lose their content for good, as by `migrator "
        "ledger purge`; empty: never",
    )
    purge_when: str = Field(
        default=_NIGHTLY,
        description="when that is done: a cron expression in UTC, or a duration between two",
    )

    @property
    def purge_rhythm(self) -> timedelta | Cron:
        """When to purge, parsed."""
        return parse_rhythm(self.purge_when)

    @field_validator("purge_when")
    @classmethod
    def _is_rhythm(cls, value: str) -> str:
        if value != _NIGHTLY:  # a verb that does not purge need not import the scheduler for it
            parse_rhythm(value)
        return value
