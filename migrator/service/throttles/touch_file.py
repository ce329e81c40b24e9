"""A file that says by being there that nothing is to be moved."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from migrator.service.throttles.base import Verdict


def judge_file(path: Path) -> Verdict | None:
    """Return that *path* exists, and since when; None: it does not.

    A file nobody lets us look at might be there.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        return Verdict(observed=f"{path} cannot be looked at: {exc.strerror or exc}")
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    observed = f"{path} exists, of {changed:%Y-%m-%d %H:%M} UTC"
    return Verdict(observed=observed, limit="until it is removed")
