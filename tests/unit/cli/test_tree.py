"""The verbs there are, as the program itself tells them."""

from __future__ import annotations

from typing import Any

from migrator.cli import root

TREE = """
preview
run
status
pause
resume
stop
set
config
verify
rollback
decommission
quarantine (list, show, retry, export, discard)
delays (create, show, probe, migrate, transfer, delete)
db (upgrade, sql, grants, resolve, adopt, purge)
completion
"""


def _line(name: str, command: Any) -> str:
    inside = [each for each, verb in getattr(command, "commands", {}).items() if not verb.hidden]
    return f"{name} ({', '.join(inside)})" if inside else name


def test_the_verbs_are_these() -> None:
    """In this order in the help, too; whatever is added has to find its place here."""
    commands = root.every_verb().commands
    told = [_line(name, command) for name, command in commands.items() if not command.hidden]
    assert told == TREE.split("\n")[1:-1]
    assert [name for name, command in commands.items() if command.hidden] == ["seed"]
