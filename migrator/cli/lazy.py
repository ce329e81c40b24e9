"""Groups of verbs that are imported when they are called.

What a verb's module imports may cost a second: a database layer, a broker client, a web server. The
list of verbs and ``--help`` need none of it: each has one line beside the group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from migrator.cli.options import GLOBAL, Function, shared_parameters, typed

COMPLETING: Final = "_MIGRATOR_COMPLETE"
"""The variable that a shell sets when it wants to complete a line."""
GLOBAL_LINE: Final = f"{', '.join(map(typed, GLOBAL))}; `migrator --help` explains them."


class _WithShared:
    """A command that has options of ``options.SHARED``: the global ones, and those it takes."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options that may be given here; ``--help`` is among them."""
        command: Any = super()
        callback = getattr(self, "callback", None)
        names = [*getattr(callback, "takes", ()), *GLOBAL]
        *own, showing_help = command.get_params(ctx)
        showing_help.default = False  # to look at None, the library would import another one
        return [*own, *(shared_parameters()[name] for name in names), showing_help]

    @staticmethod
    def is_told(param: Any) -> bool:
        """Return whether the help of a verb explains *param*, and not that of the program alone."""
        return param.name not in GLOBAL

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what may be given here; of the global options only the root tells all."""
        rows: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            is_argument = param.param_type_name == "argument"
            if ctx.parent is None or self.is_told(param):
                rows["Arguments" if is_argument else "Options"].append(param.get_help_record(ctx))
        for title, records in rows.items():
            if found := [record for record in records if record is not None]:
                with formatter.section(title):
                    formatter.write_dl(found)
        if ctx.parent is not None:
            with formatter.section("Global options, anywhere on the line"):
                formatter.write_text(GLOBAL_LINE)


class Verb(_WithShared, TyperCommand):
    """A verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option of one value that is given twice: the last one would win in silence."""
        for option in self.get_params(ctx):
            if option.param_type_name == "option" and option.nargs == 1 and not option.multiple:
                name = max(option.opts, key=len)
                if sum(each == name or each.startswith(f"{name}=") for each in args) > 1:
                    ctx.fail(f"{name} takes one value; it was given more than once.")
        command: Any = super()
        found: list[str] = command.parse_args(ctx, args)
        return found


class Group(typer.Typer):
    """Verbs of one module."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[Function], Function]:
        """Return what makes a function a verb."""
        return super().command(name, cls=Verb, **more)


def new_group(text: str | None = None, *, cls: Any = None, **more: Any) -> Group:
    """Return a group of verbs; *text* is its help. A module calls the one it has ``verbs``."""
    more |= {"no_args_is_help": True, "rich_markup_mode": None, "add_completion": False}
    if text is not None:
        more["help"] = text
    return Group(cls=cls or LazyGroup, **more)


class LazyGroup(_WithShared, TyperGroup):
    """Knows its verbs by name and one line, and loads the one that is called."""

    lines: ClassVar[Mapping[str, str]] = {}
    """What the list of verbs says of each, by name and in order."""
    unlisted: ClassVar[Collection[str]] = ()
    """Those that the list of verbs leaves out."""
    order: ClassVar[Sequence[str]] = ()
    """All its verbs as they are listed; empty: as they come."""
    modules: ClassVar[Mapping[str, str]] = {}
    """By name: the module of ``migrator.cli``, where it has another name, and what to take of it.

    It has a command of the verb's name, or is the whole group.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, line in self.lines.items():
            self.add_command(TyperCommand(name, short_help=line, hidden=name in self.unlisted))
        if self.order:
            self.commands = {name: self.commands[name] for name in self.order}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the verbs."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return name, command and arguments of the verb that *args* begin with."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and self.load(name), rest

    def load(self, name: str) -> Any:
        """Import a verb, if it is not yet, and return its command."""
        if name in self.lines:
            group = group_of(self.modules.get(name, name))
            command = group.commands.get(name, group)
            command.short_help, command.hidden = self.lines[name], name in self.unlisted
            self.add_command(command, name)
        return self.commands[name]

    def load_all(self) -> None:
        """Import every verb, for whoever goes through ``commands``; groups inside as well."""
        for name in list(self.commands):
            if isinstance(command := self.load(name), LazyGroup):
                command.load_all()


@cache  # typer reads all signatures anew
def group_of(place: str) -> Any:
    """Return the commands of a module, ``module:attribute``; the same ones each time."""
    module, _, attribute = place.partition(":")
    holder = getattr(import_module(f"migrator.cli.{module}"), attribute or "verbs")
    group = typer.main.get_group(holder)
    for each in group.commands.values():
        _end_in_examples(each)
    return group


def _end_in_examples(command: Any) -> None:
    """Let the help end in what the docstring has from ``Examples:`` on, line by line."""
    text, is_there, examples = (command.help or "").partition("\n\nExamples:\n")
    if is_there:
        command.help = text
        parts = f"Examples:\n{examples}".split("\n\n")
        command.epilog = "\n\n".join(f"\b\n{part}" for part in parts)
