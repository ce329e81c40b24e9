"""Does a store keep due times in the zone that they are read in? Rows tell by their own headers.

The vendor's stack may write the due column in local time (``stores.sql.local_time``); the Expire
header of a row is always UTC. Rules of this file:

* only a sample is looked at: the first rows, the next ones to be due, and the last ones;
* a row counts when it has a readable Expire header; it is *shifted* when its due time is whole
  quarter hours from that, up to 14 hours, to the second;
* shifted rows refuse when a time zone explains them all, or all are shifted by the same; and
  when they are at least three and a tenth of what counts, or all that counts. Fewer were edited
  by hand, as were rows that are shifted by anything else: there the column counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from migrator.ledger.work import Clock, StoreEndpoint
from migrator.stores.ports import DueTime, Store
from migrator.text import counted, listed

_QUARTER_HOUR: Final = timedelta(minutes=15)
_LARGEST_ZONE: Final = timedelta(hours=14)
_FEW: Final = 3
_SHARE: Final = 0.1
_TOLERANCE: Final = timedelta(seconds=1)
_SHOWN: Final = 4
_USUAL: Final = [
    *("UTC", "Europe/London", "Europe/Berlin", "Europe/Helsinki", "Europe/Istanbul"),
    *("America/New_York", "America/Chicago", "America/Denver", "America/Phoenix"),
    *("America/Los_Angeles", "America/Sao_Paulo", "Asia/Dubai", "Asia/Kolkata", "Asia/Singapore"),
    *("Asia/Tokyo", "Australia/Brisbane", "Australia/Sydney", "Pacific/Auckland"),
    "Africa/Johannesburg",
]
"""Named before others that explain the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimeRules:
    """What the operator said of the due column."""

    time_zone: str = "UTC"
    accepts_shifted: bool = False
    """Rows were moved by whole quarter hours on purpose: the column counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimeReading:
    """What a sample of one endpoint's rows says."""

    comparable: int = 0
    """Rows with a readable Expire header."""
    shifted: int = 0
    is_refused: bool = False
    text: str = ""
    """What was found; empty when no row is shifted."""
    remedy: str = ""


@dataclass(eq=False)
class DueTimeReader:
    """Reads whether due times are read in the zone they were written in."""

    store: Store
    clock: Clock
    rules: DueTimeRules

    def read(self, endpoint: StoreEndpoint) -> DueTimeReading:
        """Return what a sample of the rows of *endpoint* says.

        Raises:
            StoreUnavailable, StoreError: The rows cannot be read.
        """
        return judge(self.store.due_times(endpoint, self.clock.now()), self.rules)


def judge(sample: Collection[DueTime], rules: DueTimeRules) -> DueTimeReading:
    """Return what *sample*, read in the zone of *rules*, says."""
    rows = [
        _Row(each, expires_at) for each in sample if (expires_at := each.expires_at) is not None
    ]
    shifted = [row for row in rows if row.shift]
    if not shifted:
        return DueTimeReading(comparable=len(rows))
    straight = [row for row in rows if row.shift == timedelta(0)]
    zones = _zones([*shifted, *straight])
    is_constant = bool(zones or len({row.shift for row in shifted}) == 1 or _zones(shifted))
    is_much = len(shifted) >= max(_FEW, _SHARE * len(rows)) or len(shifted) == len(rows)
    is_refused = is_constant and is_much and not rules.accepts_shifted
    return DueTimeReading(
        comparable=len(rows),
        shifted=len(shifted),
        is_refused=is_refused,
        text=_text(rows, shifted, zones, rules),
        remedy=_remedy(zones) if is_constant and is_much else "",
    )


def zone_offset(difference: timedelta) -> timedelta | None:
    """Return *difference* as a time zone's offset, or None when it does not look like one.

    A driver that wrote local time is off by whole quarter hours; stores round by up to a second.
    """
    quarters = round(difference / _QUARTER_HOUR)
    offset = quarters * _QUARTER_HOUR
    is_zone = quarters and abs(offset) <= _LARGEST_ZONE and abs(difference - offset) <= _TOLERANCE
    return offset if is_zone else None


class _Row:
    """A row with its own due time to compare with."""

    def __init__(self, found: DueTime, expires_at: datetime) -> None:
        self.expires_at = expires_at
        self.stored = found.stored.replace(tzinfo=None)
        difference = found.due_at - expires_at
        is_same = abs(difference) <= _TOLERANCE
        self.shift = timedelta(0) if is_same else zone_offset(difference)
        """Zero: as the header says; None: edited by hand."""

    def is_local_time_of(self, zone: ZoneInfo) -> bool:
        """Return whether the column is what the header says, in *zone*."""
        local = self.expires_at.astimezone(zone).replace(tzinfo=None)
        difference: timedelta = local - self.stored
        return abs(difference) <= _TOLERANCE


def _zones(rows: Sequence[_Row]) -> list[str]:
    """Return the zones of which all *rows* may have the local time, usual ones first."""
    known = {each for each in available_timezones() if "/" in each} | {"UTC"}
    found = [
        name
        for name in known
        if not name.startswith(("Etc/", "SystemV/"))
        and all(row.is_local_time_of(ZoneInfo(name)) for row in rows)
    ]
    usual = {name: place for place, name in enumerate(_USUAL)}
    return sorted(found, key=lambda name: (usual.get(name, len(usual)), name))


def _text(
    rows: Sequence[_Row], shifted: Sequence[_Row], zones: Sequence[str], rules: DueTimeRules
) -> str:
    hours = sorted({row.shift / timedelta(hours=1) for row in shifted if row.shift})
    shifts = " and ".join(f"{each:+g} h" for each in hours[:_SHOWN])
    text = (
        f"of {counted(len(rows), 'sampled row')}, {counted(len(shifted), 'has', 'have')} a due "
        f"time {shifts} from the row's own Expire header, read as "
        f"{rules.time_zone} (store.time_zone)"
    )
    if zones:
        return f"{text}; they fit as local time of {listed(zones, _SHOWN)}"
    others = _zones(shifted)
    if others and len(shifted) < len(rows):
        return f"{text}; those fit as local time of {listed(others, _SHOWN)}, and others do not"
    return f"{text}; no single time zone fits"


def _remedy(zones: Sequence[str]) -> str:
    meant = "if the rows were moved on purpose, set store.accept_shifted_due_times = true"
    if zones:
        return (
            "set store.time_zone to the zone of the sessions in which the endpoint wrote them, "
            f"such as {zones[0]}; {meant}"
        )
    return f"correct the rows so that all are in one time zone, see docs/what-if.md; {meant}"
