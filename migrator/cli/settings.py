"""``migrator config``: which settings are in force, and why."""

from __future__ import annotations

import typer

from migrator import config
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Json, session_of

verbs = typer.Typer(help="Show the settings in force.", no_args_is_help=True)


@verbs.command(
    epilog="""\b
Examples:
  migrator config show
  migrator --config /etc/migrator/migrator.toml config show --json
  MIGRATOR_HANDOVER__CUTOFF=0s migrator config show"""
)
def show(context: typer.Context, as_json: Json = False) -> None:
    """Show every setting with its value, where it came from and what it means.

    Secrets are masked. Nothing is connected to.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load()
    rows = config.describe(loaded)
    if session.wants_json:
        settings = [
            {"key": r.key, "value": r.value, "origin": r.origin, "meaning": r.meaning} for r in rows
        ]
        write_json("config", {"file": loaded.file and str(loaded.file), "settings": settings})
        return
    say(f"settings file: {loaded.file or 'none'}")
    write_table(
        ("setting", "value", "origin", "meaning"),
        ((r.key, config.show_text(r.value), r.origin, r.meaning) for r in rows),
    )
