"""What every reader of foreign bytes is tried with: for a moment in CI, much longer by --full.

A target is asked with examples of a strategy, whole and damaged, and with texts in which one piece
is repeated thousands of times. It must end in time that grows no faster than what it reads.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

T = TypeVar("T", str, bytes)

EXAMPLES: Final = (
    100,
    pytest.param(60_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
)
"""Of each target: a second in CI; by --full some ten minutes, for all of them an hour."""
SIZES: Final = (256, 1024, 4096, 16_384, 65_536)
FIXED_S: Final = 0.02
S_PER_UNIT: Final = 1e-5
"""Of processor time for each byte or character; a quadratic reader passes it at 64 KiB by far."""
FIXED_BYTES: Final = 512 * 1024
BYTES_PER_UNIT: Final = 100


def fuzz(strategy: st.SearchStrategy[Any], check: Callable[[Any], object], examples: int) -> None:
    """Call *check* with so many examples of *strategy*; the smallest that fails is shown."""

    @settings(max_examples=examples, database=None)
    @given(strategy)
    def run(each: Any) -> None:
        check(each)

    run()


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Return an example of *whole* of which pieces were changed, dropped or doubled."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        after = draw(st.integers(at, min(at + 16, len(data))))
        piece = bytes(data[at:after])
        data[at:after] = draw(st.sampled_from([b"", piece * 2]) | st.binary(max_size=8))
    return bytes(data)


def repeated(pieces: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """Return what a text begins with, what is repeated in it, and what it ends with."""
    units = st.lists(pieces, min_size=1, max_size=3).map(lambda each: each[0][:0].join(each))
    return st.tuples(pieces, units.filter(len), pieces).map(list)


def grows_in_proportion(read: Callable[[T], object], parts: Sequence[T]) -> None:
    """Fail where *read* takes more time or memory than is in proportion to what it is given."""
    (begin, unit, end), data = parts, parts[0]
    for size in SIZES:
        data = begin + unit * (size // len(unit)) + end
        bound_s = FIXED_S + S_PER_UNIT * len(data)
        # the machine has other work, too: it counts what takes long each time
        took_s = min(_seconds(read, data, bound_s))
        assert took_s <= bound_s, f"{took_s:.3f} s for {len(data)} of {begin!r} {unit!r}… {end!r}"
    assert _peak_bytes(read, data) <= FIXED_BYTES + BYTES_PER_UNIT * len(data), parts


def _seconds(read: Callable[[T], object], data: T, bound_s: float) -> list[float]:
    took_s = list[float]()
    while len(took_s) < 3 and (not took_s or took_s[-1] > bound_s):
        began_s = time.process_time()
        read(data)
        took_s.append(time.process_time() - began_s)
    return took_s


def _peak_bytes(read: Callable[[T], object], data: T) -> int:
    tracemalloc.start()
    try:
        read(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
