"""How large passes are: halved by what was late, growing by what was not."""

from __future__ import annotations

from migrator.handover.size import PassSize


def test_passes_on_their_way_together_halve_it_once() -> None:
    """What was claimed at the former size says nothing about the size since then."""
    size = PassSize(lambda: 1000)
    assert size.has_arrived(1000, 3.0)
    assert not size.has_arrived(1000, 3.0)
    assert size.rows == 500
    assert size.has_arrived(500, 3.0)
    assert size.rows == 250


def test_it_stays_between_the_limits_and_grows_below_both() -> None:
    """It neither swings for nothing nor stays small for ever, and follows what is wished for."""
    wished = 1000
    size = PassSize(lambda: wished)
    size.has_arrived(800, 2.0)
    size.has_arrived(400, 1.2)
    assert size.rows == 400
    while size.rows < 1000:
        before = size.rows
        size.has_arrived(before, 0.5)
        assert before < size.rows <= 2 * before
    wished = 2000
    assert size.rows == 2000


def test_a_few_rows_are_always_taken() -> None:
    """However slow all is, rows go on; a wish for fewer is granted."""
    size = PassSize(lambda: 1000)
    for _ in range(20):
        size.halve(size.rows)
    assert size.rows == 50
    small = PassSize(lambda: 20)
    assert not small.has_arrived(20, 9.0)
    assert small.rows == 20
