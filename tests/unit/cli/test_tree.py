"""The verbs there are, as the program itself tells them."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.unit.cli.conftest import Program

TREE: Final = """\
preview, run, status, pause, resume, stop [--now], set, config, verify, rollback, decommission, \
quarantine (list, show, retry, export, discard), \
delays (create, show, probe, migrate, transfer, delete), \
db (upgrade, sql, grants [--broker], resolve, adopt, purge)"""
UNLISTED: Final = ("completion", "seed")
"""Verbs that no list has; each has its help."""


def listed(program: Program, *group: str) -> list[str]:
    """Return the verbs that the help of the program, or of a group, lists; none: it is no group."""
    _, _, after = program(*group, "--help").out.partition("\nCommands:\n")
    block, _, _ = after.partition("\n\n")
    return re.findall(r"^  (\S+)", block, re.MULTILINE)


def printed(program: Program, options: dict[str, str], *group: str) -> str:
    """Return the tree that the help prints, and which of *options* it has, by its path."""
    found = []
    for name in listed(program, *group):
        path = (*group, name)
        option = options.get(" ".join(path))
        shows_it = option and re.search(rf"^  {option}\b", program(*path, "--help").out, re.M)
        inside = printed(program, options, *path)
        found.append(name + f" [{option}]" * bool(shows_it) + f" ({inside})" * bool(inside))
    return ", ".join(found)


def test_the_verbs_are_these(program: Program) -> None:
    """In this order in the help, too; whatever is added has to find its place here."""
    assert printed(program, {"stop": "--now", "db grants": "--broker"}) == TREE


def test_verbs_that_are_not_listed_have_their_help(program: Program) -> None:
    """They are for rehearsals and for whoever installs the program."""
    for name in UNLISTED:
        assert name not in listed(program)
        assert f"Usage: migrator {name} " in program(name, "--help").out


@pytest.mark.parametrize("group", [(), ("quarantine",), ("delays",), ("db",)])
def test_no_list_of_verbs_is_cut(program: Program, group: tuple[str, ...]) -> None:
    """Each says in its line what the verb is for; within a group that line is one."""
    _, _, after = program(*group, "--help").out.partition("\nCommands:\n")
    block, _, _ = after.partition("\n\n")
    assert "..." not in block
    assert "…" not in block
    if group:
        assert len(block.strip().splitlines()) == len(listed(program, *group))


def test_every_group_is_known_here(program: Program) -> None:
    """So that the list of another one is looked at as well."""
    groups = [name for name in listed(program) if listed(program, name)]
    assert sorted(groups) == ["db", "delays", "quarantine"]
