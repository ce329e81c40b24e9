"""The date format of NServiceBus headers: ``yyyy-MM-dd HH:mm:ss:ffffff Z``, always UTC.

Note the colon before the microseconds. Readers demand exactly 28 characters.
Source: reference ``timeout-manager.md`` section 6.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_LENGTH: Final = 28


class NotAWireTime(ValueError):
    """The text is not a date as NServiceBus writes it."""


def build_wire_time(moment: datetime) -> str:
    """Return *moment* (aware) as NServiceBus writes it, in UTC, to the microsecond."""
    iso = moment.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
    return f"{iso[:19]}:{iso[20:26]} Z"


def parse_wire_time(text: str) -> datetime:
    """Return the moment, aware and in UTC, that *text* names.

    Stricter than the vendor's own readers about separators, as the vendor's command line tools
    are, so that what passes here passes everywhere: only what ``build_wire_time`` would write.

    Raises:
        NotAWireTime: Any other length, separator or digit, or a date that does not exist.
    """
    if len(text) == _LENGTH:
        try:
            moment = datetime.fromisoformat(f"{text[:19]}.{text[20:26]}").replace(tzinfo=UTC)
        except ValueError as exc:
            raise NotAWireTime(_complaint(text)) from exc
        if build_wire_time(moment) == text:
            return moment
    raise NotAWireTime(_complaint(text))


def _complaint(text: str) -> str:
    return f"{text[:40]!r} is not of the form yyyy-MM-dd HH:mm:ss:ffffff Z"
