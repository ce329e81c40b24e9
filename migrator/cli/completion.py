"""``migrator completion``: what makes a shell complete verbs and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from migrator.cli.lazy import COMPLETING, new_group
from migrator.cli.output import write_text

verbs = new_group()


class Shell(StrEnum):
    """Shells that can be told."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@verbs.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Which shell.")],
) -> None:
    """Print the script that lets a shell complete verbs and options.

    The script calls the program at each TAB, so it matches the installed version.

    Examples:
      migrator completion bash > /etc/bash_completion.d/migrator
      migrator completion zsh > /usr/local/share/zsh/site-functions/_migrator
      migrator completion fish > ~/.config/fish/completions/migrator.fish
    """
    write_text(script(shell))


def script(shell: str) -> str:
    """Return what *shell* has to read."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # re-exported

    text = get_completion_script(prog_name="migrator", complete_var=COMPLETING, shell=shell)
    return str(text).replace(_LAST_OF_ZSH, _LOADED_OR_READ)


_LAST_OF_ZSH: Final = "\ncompdef _migrator_completion migrator"
_LOADED_OR_READ: Final = """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _migrator_completion "$@"  # loaded by the first TAB, which wants its answer
else
  compdef _migrator_completion migrator
fi"""
