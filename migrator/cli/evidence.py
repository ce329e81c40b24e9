"""The evidence file of ``migrator verify``: written beside its place, and moved there when whole.

Rules of this file:

* lines are appended to ``FILE.partial``, page by page and forced to the disk; called again within
  a day of its beginning, an interrupted verification writes them anew beside it, and saves the
  hashing of what is as it was;
* what was found out later replaces lines all at once, in a copy that takes the place of the file;
* the last line has the totals, and the SHA-256 of all bytes before it;
* nobody else may read it, nobody writes it beside us, and a file that is there is never
  overwritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from migrator.errors import ConfigError
from migrator.verify.evidence import (
    SCHEMA,
    Line,
    NoLine,
    build_document,
    build_line,
    parse_document,
    parse_line,
)

_MODE: Final = 0o600
_TOTALS: Final = "totals"
_SAME: Final = ("schema", "ledger", "version", "delays", "scan", "endpoints")
"""What of the first line has to be the same for a file to be gone on with."""
_BEGUN: Final = "taken_at"
_OLDEST: Final = timedelta(hours=24)
"""All that a file says was compared within this, and the time since it is gone on with."""


@contextmanager
def open_evidence(path: Path, about: Mapping[str, object]) -> Iterator[EvidenceFile]:
    """Begin or go on with the evidence for *path*; *about* is its first line, without a schema.

    Raises:
        ConfigError: The file is there already, belongs to something else, or cannot be written.
    """
    with _explained(path):
        if path.exists():
            raise ConfigError(f"--evidence: {path} is there already; name another file")
        file = EvidenceFile(path, {"schema": SCHEMA, **about})
    try:
        yield file
    finally:
        file.close()


class EvidenceFile:
    """Implements ``verify.evidence_port.Evidence``; made by ``open_evidence``."""

    def __init__(self, path: Path, first: Mapping[str, object]) -> None:
        """Open ``path.partial`` alone, and write its first line or compare it."""
        self._path = path
        self.partial = path.with_name(path.name + ".partial")
        self._copy = path.with_name(path.name + ".amended")
        self._hash = hashlib.sha256()
        self._verdicts: Counter[str] = Counter()
        self._stream = _opened(self.partial)
        self._earlier: BinaryIO | None = None
        """What was there already, while it is written anew."""
        try:
            self._copy.unlink(missing_ok=True)
            self._begin(first)
        except BaseException:
            self.close()
            raise

    # ── the port ────────────────────────────────────────────────────────────────────────────

    def taken_over(self) -> Iterable[Line]:
        """Return the lines that were there already; see ``verify.evidence_port``."""
        with _explained(self._path), self._stream as self._earlier:
            self._begin_copy(self._earlier)
            while raw := self._earlier.readline():
                line = self._parsed(raw)
                if line is None:
                    break
                yield line
            self._take_place()

    def write(self, lines: Sequence[Line]) -> None:
        """Append lines, forced to the disk; see ``verify.evidence_port``."""
        with _explained(self._path):
            for line in lines:
                raw = build_line(line)
                self._count(raw, line)
                self._stream.write(raw)
            self._sync()

    def amend(self, changes: Mapping[int, Line]) -> None:
        """Replace lines, all or none; see ``verify.evidence_port``."""
        with _explained(self._path), self._stream as old:
            self._begin_copy(old)
            for raw in old:
                line = parse_line(parse_document(raw))
                line = changes.get(line.id, line)
                self._count(build_line(line), line)
                self._stream.write(build_line(line))
            self._take_place()

    # ── its life ────────────────────────────────────────────────────────────────────────────

    def finish(self, totals: Mapping[str, object]) -> str:
        """Write the last line, move the file to its place, and return the digest in that line."""
        digest = self._hash.hexdigest()
        lines = {"lines": self._verdicts.total(), "verdicts": dict(sorted(self._verdicts.items()))}
        with _explained(self._path):
            self._stream.write(build_document({_TOTALS: {**lines, **totals}, "sha256": digest}))
            self._sync()
            if self._path.exists():
                raise ConfigError(
                    f"--evidence: {self._path} is there now; {self.partial} is whole, move it "
                    "somewhere yourself"
                )
            self.partial.rename(self._path)
            _sync_folder(self._path.parent)
        return digest

    def close(self) -> None:
        """Close it; what was written stays, for another call to go on with."""
        self._stream.close()
        if self._earlier is not None:
            self._earlier.close()

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _begin_copy(self, old: BinaryIO) -> None:
        """Write what follows beside *old*, which is behind its first line then."""
        old.seek(0)
        self._stream = _opened(self._copy)
        self._stream.truncate()
        self._hash, self._verdicts = hashlib.sha256(), Counter()
        self._append(old.readline())

    def _take_place(self) -> None:
        """Let the copy be the file from now on."""
        self._sync()
        self._copy.replace(self.partial)

    def _begin(self, first: Mapping[str, object]) -> None:
        raw = self._stream.readline()
        if not raw.endswith(b"\n"):  # new, or killed while the first line was written
            self._stream.seek(0)
            self._stream.truncate()
            self._append(build_document(first))
            self._sync()
            return
        found = self._document(raw)
        for key in _SAME:
            if found.get(key) != first[key]:
                raise ConfigError(
                    f"--evidence: {self.partial} was begun with {key} {found.get(key)!r}, and now "
                    f"it is {first[key]!r}; call it as before, or delete the file to begin anew"
                )
        self._demand_young(found, first)

    def _demand_young(self, found: Mapping[str, object], first: Mapping[str, object]) -> None:
        try:
            begun, now = (datetime.fromisoformat(str(each[_BEGUN])) for each in (found, first))
            age = now - begun
        except (KeyError, ValueError, TypeError) as exc:
            raise self._strange(NoLine(f"no time in its first line: {exc}")) from exc
        if age > _OLDEST:
            raise ConfigError(
                f"--evidence: {self.partial} was begun {begun:%Y-%m-%d %H:%M} UTC, more than "
                f"{_OLDEST // timedelta(hours=1)} h ago; too much may have changed. Delete it to "
                "begin anew"
            )

    def _parsed(self, raw: bytes) -> Line | None:
        """Return the line of *raw*; None: it was cut off, or is the last line of a whole file."""
        if not raw.endswith(b"\n"):
            return None
        document = self._document(raw)
        if _TOTALS in document:
            return None
        try:
            return parse_line(document)
        except NoLine as exc:
            raise self._strange(exc) from exc

    def _document(self, raw: bytes) -> Mapping[str, object]:
        try:
            return parse_document(raw)
        except NoLine as exc:
            raise self._strange(exc) from exc

    def _strange(self, cause: NoLine) -> ConfigError:
        return ConfigError(
            f"--evidence: {self.partial} is not what `migrator verify` writes ({cause}); delete "
            "it to begin anew"
        )

    def _count(self, raw: bytes, line: Line) -> None:
        self._hash.update(raw)
        self._verdicts[str(line.verdict)] += 1

    def _append(self, raw: bytes) -> None:
        self._hash.update(raw)
        self._stream.write(raw)

    def _sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _opened(path: Path) -> BinaryIO:
    """Open *path* for reading and writing, for nobody but us, and alone."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    stream = os.fdopen(os.open(path, flags, _MODE), "r+b")
    try:
        _lock(path, stream)
        os.fchmod(stream.fileno(), _MODE)
    except BaseException:
        stream.close()
        raise
    return stream


def _lock(path: Path, stream: BinaryIO) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except (BlockingIOError, FileNotFoundError):
        is_ours = False
    if not is_ours:  # it may have been moved to its place while we opened it
        raise ConfigError(f"--evidence: another verification is writing {path}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into an error that names *path*."""
    try:
        yield
    except OSError as exc:
        raise ConfigError(
            f"--evidence {path} cannot be written: {exc.strerror or exc}; what was written is "
            "kept, and the same command goes on"
        ) from exc
