"""The evidence file of ``migrator verify``: one line per timeout, for somebody who was not there.

Rules of this file:

* a line says what a timeout is, where it is and what was found, and never what is in it; it is
  plain ASCII and ends with a line feed;
* lines are appended to ``FILE.partial``, which is moved to its place when it is whole; interrupted,
  a verification begins anew, and so does its file;
* what was found out later replaces lines all at once, in a copy that takes the place of the file;
* the last line has the totals, and the SHA-256 of all bytes before it;
* nobody else may read it, nobody writes it beside us, and a file that is there is never
  overwritten.

Source: docs/verify.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import BinaryIO, Final

from migrator.errors import ConfigError
from migrator.verify.report import EvidenceRecord

SCHEMA: Final = "migrator/evidence/1"
_MODE: Final = 0o600
_TOTALS: Final = "totals"
_FIELDS: Final = tuple(
    each.name for each in fields(EvidenceRecord) if each.name != "handed_over_at"
)


def build_line(record: EvidenceRecord) -> bytes:
    """Return *record* as JSON."""
    document = {name: getattr(record, name) for name in _FIELDS}
    return _line(document | {"due_at": record.due_at.isoformat()})


def _line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


@contextmanager
def open_evidence(path: Path, about: Mapping[str, object]) -> Iterator[EvidenceFile]:
    """Begin the evidence for *path*; *about* is its first line, without a schema.

    Unless it is finished, nothing of it stays.

    Raises:
        ConfigError: The file is there already, somebody writes it, or it cannot be written.
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
    """Evidence that is being written; made by ``open_evidence``.

    Raises, each of its methods:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: Path, first: Mapping[str, object]) -> None:
        """Open ``path.partial`` alone, and write its first line."""
        self._path = path
        self._partial = path.with_name(path.name + ".partial")
        self._copy = path.with_name(path.name + ".amended")
        self._hash = hashlib.sha256()
        self._verdicts: Counter[str] = Counter()
        self._is_whole = False
        self._stream = _opened(self._partial)
        try:
            _demand_ours(self._partial, self._stream)
            self._copy.unlink(missing_ok=True)
            self._stream.truncate(0)
            self._append(_line(first))
        except BaseException:
            self._stream.close()
            raise

    def write(self, records: Sequence[EvidenceRecord]) -> None:
        """Append *records*."""
        with _explained(self._path):
            for record in records:
                self._append(build_line(record))
                self._verdicts[str(record.verdict)] += 1

    def amend(self, changes: Mapping[int, EvidenceRecord]) -> None:
        """Replace the lines of these ids by what was found out later; all of them or none."""
        with _explained(self._path), self._stream as old:
            old.seek(0)
            self._stream = _opened(self._copy)
            self._hash, self._verdicts = hashlib.sha256(), Counter()
            self._append(old.readline())
            for raw in old:
                found = json.loads(raw)
                changed = changes.get(found["id"])
                self._append(raw if changed is None else build_line(changed))
                self._verdicts[found["verdict"] if changed is None else str(changed.verdict)] += 1
            self._sync()
            self._copy.replace(self._partial)

    def finish(self, totals: Mapping[str, object]) -> str:
        """Write the last line, move the file to its place, and return the digest in that line."""
        digest = self._hash.hexdigest()
        lines = {"lines": self._verdicts.total(), "verdicts": dict(sorted(self._verdicts.items()))}
        with _explained(self._path):
            self._stream.write(_line({_TOTALS: {**lines, **totals}, "sha256": digest}))
            self._sync()
            self._is_whole = True
            if self._path.exists():
                raise ConfigError(
                    f"--evidence: {self._path} is there now; {self._partial} is whole, move it "
                    "somewhere yourself"
                )
            self._partial.rename(self._path)
            _sync_folder(self._path.parent)
        return digest

    def close(self) -> None:
        """Close it; what is not whole goes, as it is evidence of nothing."""
        with _explained(self._path):
            if not self._is_whole:
                self._copy.unlink(missing_ok=True)
                self._partial.unlink(missing_ok=True)
            self._stream.close()

    def _append(self, raw: bytes) -> None:
        self._hash.update(raw)
        self._stream.write(raw)

    def _sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _demand_ours(path: Path, stream: BinaryIO) -> None:
    """Return if nothing is in *path* but what a verification left that was killed.

    Raises:
        ConfigError: Something else is.
    """
    ours = _line({"schema": SCHEMA})[:-2]
    if not ours.startswith(stream.read(len(ours))):
        raise ConfigError(
            f"--evidence: {path} is not what `migrator verify` writes; delete it, or name another "
            "file"
        )
    stream.seek(0)


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
            f"--evidence {path} cannot be written: {exc.strerror or exc}; run it "
            "again when it can be"
        ) from exc
