"""Secrets in settings: where they are read from, which files are trusted, how they are masked."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from migrator.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import SecretStr

MASK: Final = "***"
_USER: Final = (
    r"((?:(?<!\w)|(?<=\w{40}))\w{1,40}://[^\s:@/]{0,255}):(?=[^@]{0,1024}@)(?=%s{0,1024}@)"
    r"(?:(?:(?!,\s{0,9}\w{1,40}://)%s){0,1024}@|%s{0,1024}@)"
)
"""Up to the last ``@`` before the next address: a password may contain ``@``, ``/`` and ``:`` by
mistake. Without an ``@``, what looks like the next address is part of the password.

Every repetition is limited, so that the time is linear in the length of the text. Most of what
looks like an address ends at the first lookahead: no ``@`` follows.
"""
_USER_INFO: Final = re.compile(_USER % (r"\S", r"\S", r"\S"))
_USER_INFO_OF_ADDRESS: Final = re.compile(_USER % (".", ".", "."))
_KEY: Final = r"\w{0,40}(?:password|passwd|passphrase|passcode|pwd|secret|token)"
_EQUALS: Final = r"(\s{0,9}=\s{0,9}|%3D)"
"""After ``%3D`` the rest of a URL's parameter: quotes in it are not parsed."""
_QUOTED: Final = (
    r"'(?:[^'\\]|\\.|''){0,1024}'|\"(?:[^\"\\]|\\.|\"\"){0,1024}\"|\{(?:[^}]|\}\}){0,1024}\}"
)
_WORD: Final = r"[^;&\s]+"
_NEXT: Final = r"\s{0,9}[;&]\s{0,9}[\w .-]{1,40}(?:=|%3D)"
"""Where the next pair begins; keys between ``;`` may contain blanks: ``User Id``."""
_REST: Final = rf"(?:(?!{_NEXT}|\s{{1,9}}\w{{1,40}}\s{{0,9}}=)[^\r\n]){{1,1024}}"
"""Up to the next pair or the end of the line: a password may contain blanks and ``;`` by mistake.
"""
_PAIR: Final = re.compile(
    rf"({_KEY}){_EQUALS}({_QUOTED}|{_REST}(?={_NEXT})"
    rf"|{_WORD}(?:;(?![\w .-]{{1,40}}(?:=|%3D)){_WORD}){{0,99}})",
    re.IGNORECASE,
)
"""In any text: the end of the password is unknown, unless another pair follows."""
_PAIR_OF_LIST: Final = re.compile(rf"(;\s{{0,9}}{_KEY}){_EQUALS}({_QUOTED}|{_REST})", re.IGNORECASE)
_PAIR_OF_ADDRESS: Final = re.compile(rf"({_KEY}){_EQUALS}({_QUOTED}|{_REST})", re.IGNORECASE)
_AZURE: Final = re.compile(
    rf"\b(accountkey|sharedaccesssignature|sig){_EQUALS}({_QUOTED}|{_WORD})", re.IGNORECASE
)
_LARGEST_FILE_BYTES: Final = 64 * 1024
_SHORTEST_KNOWN: Final = 8
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40
"""On the path to a file; the kernel follows as many."""
_OF_CONTAINERS: Final = Path("/run/secrets")
"""A container runtime writes here for this container alone."""


_known = set[str]()
"""Passwords and tokens that this process read from the settings."""


def mask(text: str) -> str:
    """Mask everything that looks like a password, or is one of the settings'."""
    for secret in _known:
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return mask_addresses(text)


def mask_addresses(text: str) -> str:
    """As ``mask``, without the settings' own secrets."""
    text = _USER_INFO.sub(rf"\1:{MASK}@", text)
    for pattern in (_PAIR_OF_LIST, _PAIR, _AZURE):
        text = pattern.sub(rf"\1\2{MASK}", text)
    return text


def mask_address(address: str) -> str:
    """Mask every password in *address*, which is nothing else.

    One that contains blanks or ``;`` by mistake is masked to its end.
    """
    address = _USER_INFO_OF_ADDRESS.sub(rf"\1:{MASK}@", address)
    return _AZURE.sub(rf"\1\2{MASK}", _PAIR_OF_ADDRESS.sub(rf"\1\2{MASK}", address))


_PLAIN_URL: Final = re.compile(
    r"\w[\w+.-]{0,40}://([^\s:@/?#]{1,255}@)?(\[[^\]\s]{1,64}\]|[^\s:@/?#]{0,255})(:\d{1,5})?"
    r"(/[^\s:@?#]{0,1024})?(\?[^\s@#]{0,4096})?"
)
_PLAIN_PAIRS: Final = re.compile(
    r"(\s*(host|port|virtualhost|username|usetls)\s*=[^;=\s]{0,1024}\s*(;|\Z)){1,9}", re.IGNORECASE
)


def show_address(address: str) -> str:
    """Mask the secrets of *address*; all of it, where it is unclear which part they are.

    An address without a password stays as it is: scheme or key, host and user.
    """
    shown = mask_address(address)
    is_known = _PLAIN_URL.fullmatch(address) or _PLAIN_PAIRS.fullmatch(address)
    return shown if is_known or MASK in shown else MASK


def remember(*secrets: str) -> None:
    """Short secrets are left out: masking them would hide too much else."""
    _known.update(each for each in secrets if len(each) >= _SHORTEST_KNOWN)


def passwords_in(address: str) -> Sequence[str]:
    """Return the passwords in *address*, as written and as decoded.

    A password that is also the user, host or database is left out: these stay readable.
    """
    found = [
        match[0].removeprefix(match[1]).strip(":@")
        for match in _USER_INFO_OF_ADDRESS.finditer(address)
    ]
    for pattern in (_PAIR_OF_ADDRESS, _AZURE):
        for text in {address, unquote(address)}:  # a URL may hold the pairs of another form
            for match in pattern.finditer(text):
                value = match[3].strip("'\"{}")
                # what a quoted one means, by the rules of its form
                found += [
                    value,
                    re.sub(r"(['\"}])\1", r"\1", value),
                    re.sub(r"\\(.)", r"\1", value),
                ]
    shown = mask_address(address)
    return [text for each in found for text in (each, unquote(each)) if text not in shown]


def required_secret(value: SecretStr | None, *, key: str, option: str | None = None) -> str:
    """Return the secret in plain text, or raise ``ConfigError`` with every way to set it."""
    if value is None or not value.get_secret_value():
        variable = "MIGRATOR_" + key.upper().replace(".", "__")
        raise ConfigError(
            f"{key} is not set: set it in migrator.toml, as {key}_file"
            + (f" or as {variable}" if option is None else f", as {variable} or with {option}")
        )
    return value.get_secret_value()


def secret_path(name: str, *, beside: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the file that *name* means.

    A bare name is a systemd credential where there are any. Another relative path starts at the
    settings file's folder, so that the daemon may be started from anywhere.
    """
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    if credentials and Path(name).name == name:
        return Path(credentials) / name
    return Path(name) if beside is None else beside / name


def read_secret(path: Path, *, may_be_list: bool = False) -> str:
    """Return the text of a secret file without its line end; several lines only if *may_be_list*.

    Raises:
        ValueError: The file cannot be read, is empty, or any user of the machine can read it. The
            text says which, never the content.
    """
    try:
        with path.open("rb") as file:
            is_open = _others_can_read(path, os.fstat(file.fileno()))
            raw = file.read(_LARGEST_FILE_BYTES + 1)
        text = raw.decode().strip()
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise ValueError(f"{path} cannot be read: {why}") from exc
    if not text or len(raw) > _LARGEST_FILE_BYTES or ("\n" in text and not may_be_list):
        raise ValueError(f"{path} must contain exactly one line")
    if is_open:
        raise ValueError(_open_to_all(path))
    return text


def closed_key(path: Path) -> Path:
    """Return *path*, a key for a library; ``ValueError`` if any user of the machine can read it."""
    with suppress(OSError):
        if _others_can_read(path, path.stat()):
            raise ValueError(_open_to_all(path))
    return path


def _open_to_all(path: Path) -> str:
    return f"every user of this machine can read {path}: chmod o= {path}"


def _others_can_read(path: Path, found: os.stat_result) -> bool:
    """Neither its owner nor its group; files of a container are for its own user."""
    if not found.st_mode & stat.S_IROTH:
        return False
    real = path.resolve()
    if real.is_relative_to(_OF_CONTAINERS):
        return False
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)


class UntrustedError(ValueError):
    """Another user may control what a path leads to."""


def open_trusted(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open the file that *path* leads to, if only root or this user can have put it there.

    The handle is what was checked: reading it, not the path, cannot be redirected to another file.
    The path and every link on it are walked from the root. Each folder belongs to root or this
    user, and no other user may write to it, except to a sticky one in which the next step belongs
    to root or this user. Of a group, only this process's own may write the file, and only root's
    its folders.

    Raises:
        UntrustedError: Another user can have put it there, or can change it.
        OSError: It does not exist, or cannot be opened.
    """
    folder, name = walk(path, _demand_trusted)
    try:
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _demand_ours(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def walk(path: Path, check: Callable[[Step], None]) -> tuple[int, str]:
    """Return a handle of the folder that *path* leads to, and the last name, which is no link.

    Each step starts from the handle of the folder before, after *check* accepted it, so that no
    part of the path can be exchanged meanwhile. The last name need not exist.

    Raises:
        OSError: A folder does not exist, or cannot be entered.
    """
    names = [*reversed((Path.cwd() / path).parts[1:])]
    at, links = Path("/"), 0
    handle = os.open(at, _FOLDER)
    try:
        while names:
            name = names.pop()
            try:
                found = os.lstat(name, dir_fd=handle)
            except FileNotFoundError:
                if names:
                    raise
                return handle, name
            check(Step(at / name, folder=os.fstat(handle), found=found))
            if stat.S_ISLNK(found.st_mode):
                links += 1
                names += reversed(_linked(name, handle, links))
            elif names:
                handle, before = os.open(name, _FOLDER, dir_fd=handle), handle
                os.close(before)
                at = at.parent if name == ".." else at / name
            else:
                return handle, name
            if names and names[-1] == "/":
                names.pop()
                handle, before = os.open("/", _FOLDER), handle
                os.close(before)
                at = Path("/")
    except BaseException:
        os.close(handle)
        raise
    return handle, "."


def _linked(name: str, folder: int, links: int) -> Sequence[str]:
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return Path(os.readlink(name, dir_fd=folder)).parts


@dataclass(frozen=True, slots=True)
class Step:
    path: Path
    folder: os.stat_result
    """Of the folder it starts from."""
    found: os.stat_result
    """Of a file, a folder or a link."""

    @property
    def is_ours(self) -> bool:
        return _is_ours(self.found)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.found.st_mode)


def _demand_trusted(step: Step) -> None:
    folder, mode = step.path.parent, step.folder.st_mode
    if not _is_ours(step.folder):
        raise UntrustedError(f"the folder {folder} belongs to another user")
    is_of_group = mode & stat.S_IWGRP and step.folder.st_gid != 0
    if mode & stat.S_IWOTH or is_of_group:
        if not mode & stat.S_ISVTX:
            raise UntrustedError(f"other users may write to the folder {folder}")
        if not step.is_ours:
            raise UntrustedError(f"{step.path} belongs to another user")


def _demand_ours(found: os.stat_result) -> None:
    if not _is_ours(found):
        raise UntrustedError("it belongs to another user")
    is_of_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid())
    if found.st_mode & stat.S_IWOTH or is_of_group:
        raise UntrustedError("other users may write it")


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())
