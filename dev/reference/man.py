"""The manual page and the completion of shells, from what the program says of itself.

``python -m dev.reference.man FOLDER`` writes into FOLDER::

    migrator.1         the manual page, for /usr/share/man/man1
    migrator.bash      for /usr/share/bash-completion/completions/migrator
    _migrator          for /usr/share/zsh/vendor-completions
    migrator.fish      for /usr/share/fish/vendor_completions.d
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import migrator
from dev.reference import words
from dev.reference.names import calls
from migrator.cli.completion import script
from migrator.errors import ExitCode

COMPLETIONS: Final = {"bash": "migrator.bash", "zsh": "_migrator", "fish": "migrator.fish"}


def manual() -> str:
    """Return the manual page as roff."""
    (_, whole, context), *verbs = calls()
    parts = [
        f'.TH MIGRATOR 1 "" "migrator {migrator.__version__}" "User Commands"',
        ".ad l",
        ".nh",
        ".SH NAME",
        r"migrator \- move stored NServiceBus timeouts into the native delays of RabbitMQ",
        ".SH SYNOPSIS",
        r"\fBmigrator\fR \fICOMMAND\fR [\fIOPTIONS\fR]",
        ".SH DESCRIPTION",
        *_help(whole),
        ".SH GLOBAL OPTIONS",
        "They may stand before or after the command.",
        *_options(whole, context, everywhere=True),
        ".SH COMMANDS",
    ]
    for path, command, context in verbs:
        parts += [f".SS {_text(' '.join(path))}", *_help(command)]
        parts += [*_options(command, context, everywhere=False), *_examples(command)]
    parts.append(".SH EXIT STATUS")
    for code in ExitCode:
        meaning, remedy = words.EXIT_CODES[code]
        parts += [".TP", rf"\fB{int(code)}\fR", f"{_text(meaning)}. {_text(remedy)}"]
    return "\n".join(parts) + "\n"


def _help(command: Any) -> Iterator[str]:
    for paragraph in (command.help or "").split("\n\n"):
        yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _options(command: Any, context: Any, *, everywhere: bool) -> Iterator[str]:
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and (everywhere or command.is_told(param)):
            yield ".TP"
            yield rf"\fB{_text(record[0])}\fR"
            yield _text(" ".join(record[1].split())) or r"\&"


def _examples(command: Any) -> Iterator[str]:
    for block in (command.epilog or "").split("\n\n"):
        title, *lines = block.removeprefix("\b\n").splitlines() or [""]
        if title:
            yield from (".PP", _text(title))
            yield from (".RS 2", ".EX", *map(_text, lines), ".EE", ".RE")


def _text(text: str) -> str:
    """Return *text* as roff that means just these characters."""
    escaped = (
        text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\`").replace("'", r"\(aq")
    )
    escaped = "".join(each if each.isascii() else rf"\[u{ord(each):04X}]" for each in escaped)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def write(folder: Path) -> None:
    """Write all into *folder*, which is made when it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "migrator.1").write_text(manual(), encoding="utf-8")
    for shell, name in COMPLETIONS.items():
        (folder / name).write_text(script(shell) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="dev.reference.man", description="Write the manual page and the completions."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args(arguments).folder
    write(folder)
    print(
        f"dev: the manual page and {len(COMPLETIONS)} completions are in {folder}", file=sys.stderr
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
