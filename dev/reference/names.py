"""The pages of names one meets: verbs, codes, actions, reasons, checks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from dev.reference import words
from dev.reference.markdown import page, table, word
from migrator import errors
from migrator.cli.lazy import group_of
from migrator.cli.root import every_verb
from migrator.nservicebus.conversion import Reason
from migrator.preflight.registry import CHECKS, DELAY_CHECKS

_WIDTH: Final = 100
"""Characters; so that help is wrapped alike whatever terminal this runs in."""

# ── the command line ────────────────────────────────────────────────────────────────────────


def cli() -> str:
    """Return the help of every verb, in the order in which the program lists them."""
    return page(
        "Command line",
        "What `--help` prints, for the program and each of its verbs.",
        "The options of the program itself are global: they may stand before or after the "
        "verb, `migrator --config FILE status` is `migrator status --config FILE`.",
        *(_text_block(" ".join(path), text) for path, text in helps()),
    )


def helps() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every command as the words one types, with its help."""
    for path, _, context in calls():
        yield path, context.get_help()


def calls() -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield every command as the words one types, with itself and the context of a call."""
    group_of.cache_clear()  # a command keeps the help option it was first asked for
    yield from _calls(every_verb(), ("migrator",), None)


def _calls(command: Any, path: tuple[str, ...], above: Any) -> Iterator[tuple[Any, Any, Any]]:
    context = command.make_context(
        path[-1], [], parent=above, resilient_parsing=True, terminal_width=_WIDTH, color=False
    )
    yield path, command, context
    for name, verb in getattr(command, "commands", {}).items():
        yield from _calls(verb, (*path, name), context)


def _text_block(title: str, text: str) -> str:
    lines = (line.rstrip() for line in text.strip().splitlines())
    return f"## {title}\n\n```text\n" + "\n".join(lines) + "\n```"


# ── codes and actions ───────────────────────────────────────────────────────────────────────


def exit_codes() -> str:
    """Return what each exit code means, and which errors end the program with it."""
    rows = [
        (str(int(code)), *word(words.EXIT_CODES, code), _errors_of(code))
        for code in errors.ExitCode
    ]
    return page(
        "Exit codes",
        "What the process tells its caller; the last line on stderr says why.\n"
        "With `--json` that line is one object, also for an error in usage: `error` is the text, "
        "`exit_code` and `outcome` the code and its name, `remedy` what to do where the text "
        'alone does not say it (else null), `schema` is `"migrator/error/1"`.\n'
        "Stdout has the document of the verb or nothing.",
        table(("code", "meaning", "what to do", "errors"), rows),
        "`preview` and `delays show` end with 3 or 4 when something is refused, `delays probe` "
        "with 3 when a probe is lost or early.\n"
        "A list ends with 0, whatever is in it.",
    )


def _errors_of(code: errors.ExitCode) -> str:
    found = [
        kind.__name__
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.MigratorError) and kind.exit_code is code
    ]
    return ", ".join(f"`{name}`" for name in sorted(found))


def log_actions() -> str:
    """Return every log action with what it tells."""
    rows = [(f"`{action}`", meaning) for action, meaning in sorted(words.LOG_ACTIONS.items())]
    return page(
        "Log actions",
        "Log lines go to stderr: text on a terminal, JSON elsewhere, see `log.format`.\n"
        "The field `action` says what happened; the text beside it may change, "
        "the action does not.",
        table(("action", "what it tells"), rows),
    )


def quarantine_reasons() -> str:
    """Return every reason why a row is kept aside, and the way out."""
    rows = [(f"`{reason}`", reason.meaning, reason.remedy) for reason in sorted(Reason)]
    return page(
        "Quarantine reasons",
        "A row that cannot be delayed natively is kept in the ledger with one of these codes.\n"
        "`migrator quarantine show ID` tells what was found in it.\n"
        "“Then retry” means `migrator quarantine retry --reason CODE`, "
        "while `migrator run` works or before it does.",
        table(("code", "what it means", "what to do"), rows),
        "To get at a row with SQL, `migrator rollback --keep-handed-over --endpoint NAME --yes` "
        "puts it back into its table, with all other rows of that endpoint that were not handed "
        "over.",
    )


def checks() -> str:
    """Return what each check asks, and how bad its answer can be."""
    of_delays = [name for name in DELAY_CHECKS if name not in CHECKS]
    also = ", ".join(f"`{name}`" for name in DELAY_CHECKS if name in CHECKS)
    columns = ("check", "what it asks and does", "at worst", "remedy")
    return page(
        "Checks",
        "`migrator preview` makes all of the first table and changes nothing; `migrator run` makes "
        "them before it starts, and does not start when one refuses.",
        "A finding is `ok`, `warning`, `refused` or `not_checked`.\n"
        "What could not be asked is `not_checked`, which is not the same as fine: "
        "most often `broker.management_url` is missing.",
        table(columns, map(_check_row, CHECKS)),
        f"`migrator delays show` makes {also}, and these:",
        table(columns, map(_check_row, of_delays)),
    )


def _check_row(name: str) -> tuple[str, str, str, str]:
    check = {**CHECKS, **DELAY_CHECKS}[name]
    question, answer, *_ = (
        " ".join(p.split()) for p in (inspect.getdoc(check) or "").split("\n\n")
    )
    used = _names_used(check)
    worst = ", ".join(level for level in ("refused", "warning") if level in used)
    return f"`{name}`", f"{question} {answer}", worst, word(words.CHECKS, name)


def _names_used(function: Any) -> set[str]:
    """Return the names that *function* uses, and those it calls in its own module."""
    known = {name: f for name, f in vars(inspect.getmodule(function)).items() if callable(f)}
    found: set[str] = set()
    left = [function.__code__]
    while left:
        code = left.pop()
        new = set(code.co_names) - found
        found |= new
        left += [each for each in code.co_consts if inspect.iscode(each)]
        left += [known[n].__code__ for n in new if inspect.isfunction(known.get(n))]
    return found
