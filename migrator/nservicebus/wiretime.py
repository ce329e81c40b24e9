"""The date format of NServiceBus headers: ``yyyy-MM-dd HH:mm:ss:ffffff Z``, always UTC.

Note the colon before the microseconds. Readers demand exactly 28 characters.
Source: reference ``timeout-manager.md`` section 6.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_LENGTH: Final = 28
_SEPARATORS: Final = "-- :::"
"""Every third character from the fifth to the twentieth."""


class NotAWireTime(ValueError):
    """The text is not a date as NServiceBus writes it."""


def build_wire_time(moment: datetime) -> str:
    """Return *moment* (aware) as NServiceBus writes it, in UTC, to the microsecond."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    iso = utc.isoformat(sep=" ", timespec="microseconds")
    return f"{iso[:19]}:{iso[20:26]} Z"


def parse_wire_time(text: str) -> datetime:
    """Return the moment, aware and in UTC, that *text* names.

    Stricter than the vendor's own readers about separators, as the vendor's command line tools
    are, so that what passes here passes everywhere: only what ``build_wire_time`` would write.

    Raises:
        NotAWireTime: Any other length, separator or digit, or a date that does not exist.
    """
    has_form = len(text) == _LENGTH and text[4:20:3] == _SEPARATORS and text[26:] == " Z"
    if not has_form or text[11:13] == "24":
        raise NotAWireTime(_complaint(text))
    try:
        # seven separators stand where they must: what is between them can only be digits
        return datetime.fromisoformat(f"{text[:19]}.{text[20:26]}+00:00")
    except ValueError as exc:
        raise NotAWireTime(_complaint(text)) from exc


def _complaint(text: str) -> str:
    return f"{text[:40]!r} is not of the form yyyy-MM-dd HH:mm:ss:ffffff Z"


def seconds_up(span: timedelta) -> int:
    """Return *span* in whole seconds, rounded up; exact, without floating point."""
    return span.days * 86_400 + span.seconds + (span.microseconds > 0)
