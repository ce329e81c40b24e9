"""``migrator pause``, ``resume``, ``set`` and ``stop``: tell a running daemon."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from migrator.cli.daemon import client_of
from migrator.cli.lazy import new_group
from migrator.cli.options import Endpoints, Socket
from migrator.cli.output import write_json, write_text
from migrator.cli.session import Session, session_of
from migrator.errors import CommandRefused, ConfigError
from migrator.nservicebus.timeouts import EndpointName
from migrator.reports import fields_of
from migrator.web.control import (
    NO_REASON,
    Adjust,
    Answer,
    Command,
    Drain,
    Pause,
    Resume,
    RuntimeSetting,
    StopNow,
    build_order,
    parse_order,
)

verbs = new_group()

Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Why; shown wherever the pause is shown.")
]


@verbs.command()
def pause(
    context: typer.Context,
    endpoint: Endpoints = None,
    reason: Reason = NO_REASON,
    socket: Socket = None,
) -> None:
    """Claim nothing more; what is claimed is finished. Lasts until resumed, restarts included.

    Examples:
      migrator pause --reason "index rebuild until 6"
      migrator pause --endpoint Sales --endpoint Billing --reason "their queue is full"
    """
    commands = [Pause(endpoint=whom, reason=reason) for whom in _each(endpoint)]
    _give(commands, session_of(context), socket)


@verbs.command()
def resume(
    context: typer.Context,
    endpoint: Endpoints = None,
    socket: Socket = None,
) -> None:
    """Lift a pause; without --endpoint every pause. Other reasons to wait remain.

    If nothing is paused, a database clock that jumped is trusted from now on.

    Examples:
      migrator resume
      migrator resume --endpoint Sales
    """
    _give([Resume(endpoint=whom) for whom in _each(endpoint)], session_of(context), socket)


@verbs.command("set")
def adjust(
    context: typer.Context,
    setting: Annotated[
        RuntimeSetting,
        typer.Argument(metavar="batch_size|rate_limit|pace|lanes|cutoff", help="What to change."),
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="As in the settings file.")],
    socket: Socket = None,
) -> None:
    """Change a setting of [handover] until the daemon is started again.

    Examples:
      migrator set batch_size 200
      migrator set rate_limit 500
      migrator set pace full
      migrator set lanes 4
      migrator set cutoff 5m
    """
    _give([Adjust(setting=setting, value=value)], session_of(context), socket)


@verbs.command()
def stop(
    context: typer.Context,
    now: Annotated[
        bool,
        typer.Option("--now", help="End after the current step, as the second SIGTERM does."),
    ] = False,
    socket: Socket = None,
) -> None:
    """Have the daemon finish what is claimed, then end: as the first SIGTERM does.

    Does not wait for the end. The next start continues from there, also after --now.

    Examples:
      migrator stop
      migrator stop --now --socket /run/migrator/control.sock
    """
    _give([StopNow() if now else Drain()], session_of(context), socket)


def _each(named: Sequence[str] | None) -> Sequence[EndpointName | None]:
    """Return the endpoints that a command is for; None is all of them."""
    return [EndpointName(name) for name in named] if named else [None]


def _give(commands: Sequence[Command], session: Session, socket: Path | None) -> None:
    who = _caller()
    try:
        for command in commands:
            parse_order(build_order(command, who))
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    answers = [
        client_of(session, socket, getattr(each, "endpoint", None)).give(each, who)
        for each in commands
    ]
    refused = [each.text for each in answers if not each.is_done]
    text = "; ".join(each.text for each in answers)
    if session.wants_json:
        write_json("control", fields_of(Answer(is_done=not refused, text=text)))
    if refused:
        raise CommandRefused(f"refused: {text}")
    if not session.wants_json:
        write_text(text)


def _caller() -> str | None:
    """Return how whoever calls is called; None: nobody knows."""
    try:
        name = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return None
    return name if name.isprintable() and name.strip() else None
