"""``migrator endpoints``: whose timeouts does the store have?"""

from __future__ import annotations

import typer

from migrator.cli.opening import mode_of, opened
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Json, session_of

EPILOG = """\b
Examples:
  migrator endpoints
  migrator --store-url postgresql+psycopg://nsb@db/sales endpoints --json"""


def endpoints(context: typer.Context, as_json: Json = False) -> None:
    """List the endpoints that have a timeouts table, with what is done for each.

    A table does not tell dots from underscores: name the endpoint in [[endpoints]] as it is
    called, and it is listed so.
    """
    session = session_of(context, as_json=as_json)
    with opened(session.load()) as app:
        found = app.store.endpoints()
        configured = {endpoint.name for endpoint in app.settings.endpoints}
        modes = {endpoint.name: mode_of(app, endpoint.name) for endpoint in found}
    if session.wants_json:
        rows = [
            {
                "endpoint": e.name,
                "source": e.source,
                "configured": e.name in configured,
                "mode": modes[e.name],
            }
            for e in found
        ]
        write_json("endpoints", {"endpoints": rows})
        return
    write_table(
        ("endpoint", "source", "configured", "mode"),
        ((e.name, e.source, e.name in configured, modes[e.name]) for e in found),
    )
    if not found:
        where = "store.url" if app.settings.store.kind.has_own_ledger else "store.schema"
        say(f"the store has no endpoint's timeouts; check the database and {where}")
