"""What the package is called, and what it says of itself; nobody is told to install another one."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path
from typing import Any, Final

import pytest

from dev import metadata
from migrator import __version__
from migrator.errors import DISTRIBUTION

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_FOLDERS: Final = ("docs", "dev", "migrator", "systemd", ".ci")
_TOLD: Final = [
    *(path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.*")),
    *(ROOT / "dev").glob("*"),
    *ROOT.glob("*.md"),
    ROOT / "Dockerfile",
    ROOT / "pyproject.toml",
]
_STRANGERS: Final = re.compile(
    r"pip3? install (?:-\S+ )*[\"']?migrator\b|(?<![-\w/])migrator\[[a-z]"
)


def test_nobody_is_told_to_install_a_package_of_others() -> None:
    """On the package index, `migrator` is another project: pip would install its code."""
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["scripts"] == {"migrator": "migrator.cli:main"}
    for path in _TOLD:
        text = path.read_text(encoding="utf-8", errors="ignore") if path.is_file() else ""
        if path.suffix == ".pyc":
            continue
        assert not _STRANGERS.search(text), path.relative_to(ROOT)
    assert all(_STRANGERS.search(text) for text in ('pip install "migrator[x]"', "`migrator[x]`"))


def test_extras_that_are_named_exist() -> None:
    """Each brings a driver, and PostgreSQL's users get none of them."""
    for path in _TOLD:
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            assert {*re.findall(rf"{DISTRIBUTION}\[(\w+)\]", text)} <= {
                *PROJECT["optional-dependencies"]
            }
    core = " ".join(PROJECT["dependencies"])
    drivers = (each for extra in PROJECT["optional-dependencies"].values() for each in extra)
    assert [each for each in drivers if re.split(r"\W", each)[0] in core] == []


@pytest.mark.parametrize("url", ["", "https://code.example/someone/migrator"])
def test_the_package_has_addresses_only_where_they_are_known(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one, no link of the readme is relative; without, none is invented."""
    monkeypatch.setenv("PROJECT_URL", url)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (path,) = tmp_path.glob("*.whl")
    assert path.name == f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        found = {name.partition("/")[0] for name in wheel.namelist()}
        about = wheel.read(f"{path.name.removesuffix('-py3-none-any.whl')}.dist-info/METADATA")
    assert found == {"migrator", f"{path.name.removesuffix('-py3-none-any.whl')}.dist-info"}
    told = BytesParser(policy=compat32).parsebytes(about)
    assert (told["Name"], told["Version"]) == (DISTRIBUTION, __version__)
    addresses = [each.partition(", ")[2] for each in told.get_all("Project-URL", [])]
    assert len(addresses) == (5 if url else 0)
    assert all(each.startswith(url) for each in addresses)
    links = re.findall(r"\]\(([^)]+)\)", str(told.get_payload()))
    assert links
    assert all(each.startswith(f"{url}/blob/v{__version__}/") for each in links) is bool(url)
    for link in links if url else ():
        assert (ROOT / link.partition(f"/v{__version__}/")[2].partition("#")[0]).is_file()


def test_links_of_other_kinds_stay() -> None:
    """An address, and a heading of the same page."""
    text = "[a](https://a.b/c) [d](#e) [f](docs/f.md#g)"
    made = metadata.absolute(text, "https://h/o/n", version="1")
    assert made == "[a](https://a.b/c) [d](#e) [f](https://h/o/n/blob/v1/docs/f.md#g)"
