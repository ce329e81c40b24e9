"""The evidence file of ``migrator verify``: one line per timeout, for an auditor.

Rules of this file:

* a line says what a timeout is, where it is and what was found, and never what is in it; it is
  plain ASCII and ends with a line feed;
* lines wait in a file without a name until the verification is done, so that nothing stays of
  one that is interrupted; then they are written once, with what was found out about them later;
* the last line has the totals, and the SHA-256 of all bytes before it;
* only its owner may read it, and a file that is there is never overwritten.

Source: docs/verify.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Final

from migrator.errors import ConfigError
from migrator.verify.report import EvidenceRecord

SCHEMA: Final = "migrator/evidence/1"
_KEPT_BACK: Final = {"claimed_at", "handed_over_at", "body_hash"}
_FIELDS: Final = tuple(name for name in EvidenceRecord._fields if name not in _KEPT_BACK)


def build_line(record: EvidenceRecord) -> bytes:
    """Return *record* as JSON."""
    document = {name: getattr(record, name) for name in _FIELDS}
    return _line(document | {"due_at": record.due_at.isoformat()})


def _line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


@contextmanager
def open_evidence(path: Path, about: Mapping[str, object]) -> Iterator[EvidenceFile]:
    """Begin the evidence for *path*; *about* is its first line, without a schema.

    Raises:
        ConfigError: The file is there already, or cannot be written.
    """
    with ExitStack() as stack:
        with _explained(path):
            _demand_absent(path)
            lines = stack.enter_context(TemporaryFile(dir=path.parent))
        yield EvidenceFile(path, lines, {"schema": SCHEMA, **about})


class EvidenceFile:
    """Evidence that is being written; made by ``open_evidence``.

    Raises, each of its methods:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: Path, lines: IO[bytes], first: Mapping[str, object]) -> None:
        self._path = path
        self._lines = lines
        self._first = first
        self._changes: dict[int, EvidenceRecord] = {}

    def write(self, records: Sequence[EvidenceRecord]) -> None:
        """Append *records*."""
        with _explained(self._path):
            self._lines.writelines(map(build_line, records))

    def amend(self, changes: Mapping[int, EvidenceRecord]) -> None:
        """Have the lines of these ids replaced by what was found out later."""
        self._changes |= changes

    def finish(self, totals: Mapping[str, object]) -> str:
        """Write the file, and return the digest in its last line."""
        name, folder = self._path.name, self._path.parent
        with (
            _explained(self._path),
            NamedTemporaryFile(
                dir=folder, prefix=f"{name}.", suffix=".partial", delete=False
            ) as whole,
        ):
            try:
                digest = self._write_whole(whole, totals)
                _demand_absent(self._path)
                Path(whole.name).rename(self._path)
            except BaseException:
                Path(whole.name).unlink()
                raise
            _sync_folder(folder)
        return digest

    def _write_whole(self, file: IO[bytes], totals: Mapping[str, object]) -> str:
        """Write all lines to *file*, and on to the disk; return the digest."""
        digest, verdicts = hashlib.sha256(), Counter[str]()
        for raw in self._told(verdicts):
            digest.update(raw)
            file.write(raw)
        told = {"lines": verdicts.total(), "verdicts": dict(sorted(verdicts.items())), **totals}
        file.write(_line({"totals": told, "sha256": digest.hexdigest()}))
        file.flush()
        os.fsync(file.fileno())
        return digest.hexdigest()

    def _told(self, verdicts: Counter[str]) -> Iterator[bytes]:
        """Yield all lines but the last, and count in *verdicts*."""
        yield _line(self._first)
        self._lines.seek(0)
        for raw in self._lines:
            found = json.loads(raw)
            changed = self._changes.get(found["id"])
            verdicts[found["verdict"] if changed is None else str(changed.verdict)] += 1
            yield raw if changed is None else build_line(changed)


def _demand_absent(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"--evidence: {path} already exists; name another file")


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
            f"--evidence {path} cannot be written: {exc.strerror or exc}; run it again once it "
            "can be written"
        ) from exc
