"""Groups of verbs that are imported when they are called.

Each verb has a module of its own, and what that imports may cost a second: a database layer, a
broker client, a web server. The list of verbs, ``--help`` and the shell's completion need none of
it: names and first lines are declared beside the group. A test compares them with the modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, or one group of them, as far as it is known without its module."""

    name: str
    place: str
    """``module:function`` below ``migrator.cli``; ``module:verbs`` is a group."""
    help: str
    """The first line of its help."""
    epilog: str = "EPILOG"
    """The constant of that module with the end of a function's help."""

    def load(self) -> TyperCommand | TyperGroup:
        """Import the module, and return the command."""
        module_name, _, attribute = self.place.partition(":")
        module = import_module(f"migrator.cli.{module_name}")
        found = getattr(module, attribute)
        holder = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=self.name)
        else:
            holder.command(self.name, epilog=getattr(module, self.epilog))(found)
        made: Any = typer.main.get_group(holder).commands[self.name]
        return made  # type: ignore[no-any-return]  # typer types it as its copy of click's class


class LazyGroup(TyperGroup):
    """Knows its verbs by name and first line, and loads the one that is called."""

    verbs: ClassVar[Sequence[Verb]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for verb in self.verbs:
            self.add_command(TyperCommand(verb.name, help=verb.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return name, command and arguments of the verb that *args* begin with."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            self._load(name)
            command = self.commands[name]
        return name, command, rest

    def load_all(self) -> None:
        """Import every verb, for whoever goes through ``commands``; groups inside as well."""
        for name, command in list(self.commands.items()):
            self._load(name)
            if isinstance(command := self.commands[name], LazyGroup):
                command.load_all()

    def _load(self, name: str) -> None:
        for verb in self.verbs:
            if verb.name == name:
                self.add_command(verb.load())
