"""What the package says of itself that depends on where the project is published.

``PROJECT_URL`` is the address of the repository (`https://host/owner/name`), set by whoever
releases. With it the package has addresses, and the readme's links are absolute, as a package index
needs them. Without it nothing is invented: there are no addresses, and links stay as they are.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s]+)(?=\))")


def absolute(text: str, url: str, *, version: str) -> str:
    """Return Markdown whose relative links lead to the files of that release at *url*."""
    return _LINK.sub(lambda match: f"{url}/blob/v{version}/{match[1]}", text)


def urls(url: str, *, version: str) -> dict[str, str]:
    """Return the addresses of the project, by their names on a package index."""
    at = f"{url}/blob/v{version}"
    return {
        "Source": url,
        "Documentation": f"{at}/docs/index.md",
        "Changelog": f"{at}/CHANGELOG.md",
        "Issues": f"{url}/issues",
        "Security": f"{url}/security/policy",
    }


class ProjectMetadata(MetadataHookInterface):
    """Called by hatchling when it builds or installs."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the readme, and the addresses if they are known."""
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        if url := os.environ.get("PROJECT_URL", "").rstrip("/"):
            found = re.search('__version__ = "(.+)"', (root / "migrator/__init__.py").read_text())
            assert found is not None  # noqa: S101 - hatchling read it there a moment before
            text = absolute(text, url, version=found[1])
            metadata["urls"] = urls(url, version=found[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
