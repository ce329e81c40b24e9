"""The date format of NServiceBus headers: ``yyyy-MM-dd HH:mm:ss:ffffff Z``, always UTC.

Note the colon before the microseconds. Readers demand exactly 28 characters.
Source: reference ``timeout-manager.md`` section 6.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f Z"
_LENGTH: Final = 28


class NotAWireTime(ValueError):
    """The text is not a date as NServiceBus writes it."""


def build_wire_time(moment: datetime) -> str:
    """Return *moment* (aware) as NServiceBus writes it, in UTC, to the microsecond."""
    utc = moment.astimezone(UTC)
    return f"{utc.year:04d}" + utc.strftime("-%m-%d %H:%M:%S:%f Z")


def parse_wire_time(text: str) -> datetime:
    """Return the moment, aware and in UTC, that *text* names.

    Stricter than the vendor's own readers about separators, as the vendor's command line tools
    are, so that what passes here passes everywhere.

    Raises:
        NotAWireTime: Any other length, separator or digit, or a date that does not exist.
    """
    if len(text) != _LENGTH or not text.isascii():
        raise NotAWireTime(f"{text[:40]!r} is not of the form yyyy-MM-dd HH:mm:ss:ffffff Z")
    try:
        moment = datetime.strptime(text, _FORMAT)  # noqa: DTZ007 - the Z is literal; set below
    except ValueError as exc:
        raise NotAWireTime(f"{text!r} is not of the form yyyy-MM-dd HH:mm:ss:ffffff Z") from exc
    return moment.replace(tzinfo=UTC)
