"""What was seen in the levels is found again by the rows of the ledger."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.delays.tagged import Place, TaggedMessage
from migrator.errors import ConfigError
from migrator.nservicebus.timeouts import BatchId, TimeoutId
from migrator.verify.tagged import TaggedMessages
from tests.unit.verify.world import NOW, record


def tagged(batch: int, row_index: int, *, level: int = 16) -> TaggedMessage:
    """Return a message of a row, seen now."""
    return TaggedMessage(
        batch=BatchId(batch),
        row_index=row_index,
        timeout_id=TimeoutId(f"t{row_index}"),
        attempt=1,
        body_bytes=7,
        body_hash="ab",
        version="v1",
        level=level,
        delay_s=2**28 - 1,
        seen_at_s=NOW.timestamp(),
    )


def test_messages_are_found_by_their_rows_in_the_order_they_were_seen() -> None:
    """Also those that come after some were asked for; rows without any are left out."""
    rows = [record(n, batch=BatchId(10**17 + n % 2)) for n in range(6)]
    first, again, behind = (tagged(10**17 + 1, 3, level=n) for n in (27, 3, 0))
    with TaggedMessages() as kept:
        kept.add([first, tagged(10**17, 2), tagged(10**17, 3), tagged(9, 1), again])
        kept.sort()
        found = kept.of(rows)
        assert found == {(10**17 + 1, 3): [first, again], (10**17, 2): [tagged(10**17, 2)]}
        (message, _) = found[BatchId(10**17 + 1), 3]
        assert message.place == Place(level=27, delay_s=2**28 - 1, version=DelaysVersion.V1)
        assert message.seen_at == NOW
        kept.add([behind])
        assert kept.of(rows[3:4]) == {(10**17 + 1, 3): [first, again, behind]}
        assert kept.of(rows[:1]) == {}


def test_a_full_disk_is_told() -> None:
    """With where the file is; nothing is half compared."""
    with TaggedMessages() as kept:
        kept._file.execute("PRAGMA max_page_count = 4")
        with pytest.raises(ConfigError, match=r"temporary file: .* full; TMPDIR names"):
            kept.add(tagged(1, n) for n in range(1000))
