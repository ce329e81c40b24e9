"""What ``dev/docs`` runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from dev.reference import layers, names, schemas, web
from dev.reference.ledger import ledger
from dev.reference.licences import licences
from dev.reference.settings import settings

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "cli.md": names.cli,
    "settings.md": settings,
    "exit-codes.md": names.exit_codes,
    "log-actions.md": names.log_actions,
    "quarantine-reasons.md": names.quarantine_reasons,
    "ledger.md": ledger,
    "checks.md": names.checks,
    "http.md": web.http,
    "schemas.md": schemas.listed,
    "metrics.md": web.metrics,
    "licences.md": licences,
}
"""Every generated page by its file name."""


def write(folder: Path) -> None:
    """Write all pages and schemas into *folder*, which is made when it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    (folder / "schemas").mkdir(exist_ok=True)
    for name, text in schemas.schemas().items():
        (folder / "schemas" / name).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the reference; return the exit code."""
    parser = argparse.ArgumentParser(prog="dev/docs", description="Write docs/reference.")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    folder = parser.parse_args(arguments).into
    write(folder)
    layers.PAGE.write_text(layers.page(), encoding="utf-8")
    print(f"dev: {len(PAGES)} pages written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
