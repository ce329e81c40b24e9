"""The page of licences: what every locked package says of itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import metadata
from pathlib import Path
from typing import Final

from dev.reference.markdown import page, table

_LOCKS: Final = Path(__file__).resolve().parents[2] / "requirements"
_NAME: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==", re.MULTILINE)
_LONGEST: Final = 60
"""Characters; more is a whole text in the place of a name."""


def licences() -> str:
    """Return what is installed with migrator, and what only its developers install."""
    run, dev = _locked("run.txt"), _locked("dev.txt")
    return page(
        "Licences",
        "What each locked package says of its own licence; migrator's own is in `LICENSE`.",
        "The wheel contains none of these packages. The Debian package and the image contain "
        "those of the first table, as their authors publish them.",
        "- `certifi`, the certificates of public authorities, is under **MPL-2.0**: whoever passes "
        "on a changed copy of its files has to publish these files. migrator uses it unchanged.\n"
        "- `psycopg` and `psycopg-binary` are under **LGPL-3.0-only**: they are packages of their "
        "own beside migrator, which can be replaced by other versions.",
        "## To run it",
        _table(run),
        "## To work on it",
        "Nothing of this is passed on with migrator.",
        _table([name for name in dev if name not in run]),
    )


def licence(name: str) -> str:
    """Return the licence of an installed package, by the most exact of three ways to say it."""
    told = metadata(name)
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in told.get_all("Classifier") or []
        if each.startswith("License :: ") and not each.endswith(":: DFSG approved")
    ]
    text = (told.get_all("License") or [""])[0]
    is_name = 0 < len(text) <= _LONGEST and "\n" not in text and text != "UNKNOWN"
    if "License-Expression" in told:
        return str(told["License-Expression"])
    return text if is_name else ", ".join(classifiers)


def _locked(file: str) -> Sequence[str]:
    return sorted({*_NAME.findall((_LOCKS / file).read_text(encoding="utf-8"))})


def _table(names: Sequence[str]) -> str:
    rows = [(name, metadata(name)["Version"], licence(name)) for name in names]
    unknown = [name for name, _, text in rows if not text]
    if unknown:
        raise SystemExit(f"no licence in the metadata of {', '.join(unknown)}; look it up")
    return table(("package", "version", "licence"), rows)
