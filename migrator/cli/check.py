"""``migrator check``: may a migration begin? ``migrator delays show``: are the delays sound?"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from migrator.app import App
from migrator.app.preflight import check_context
from migrator.app.preview import count_rows
from migrator.cli.findings import exit_code, findings_document, write_findings
from migrator.cli.lazy import new_group
from migrator.cli.output import rows_read, say, write_json, write_table
from migrator.cli.session import (
    AllEndpoints,
    Cutoff,
    Delays,
    Endpoints,
    Horizon,
    Json,
    Map,
    Mode,
    NearDue,
    endpoint_names,
    session_of,
)
from migrator.errors import LedgerError, PreflightRefused, StoreError
from migrator.preflight.registry import run_checks
from migrator.stores.endpoints import EndpointPreview, chosen_endpoints

verbs = new_group()


@verbs.command()
def check(
    context: typer.Context,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    mode: Mode = None,
    cutoff: Cutoff = None,
    near_due: NearDue = None,
    horizon: Horizon = None,
    rename: Map = None,
    delays: Delays = None,
    as_json: Json = False,
) -> None:
    """Look at store, ledger and broker, and say what would go wrong. Changes nothing.

    What cannot be asked is listed as not_checked, which is not the same as fine.

    Examples:
      migrator check
      migrator check --endpoint Sales --mode direct
      migrator check --all-endpoints --cutoff 0s --json

    Exit codes: 0 nothing refused; 3 refused; 4 store or broker unreachable.
    """
    session = session_of(context)
    with session.opened() as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        findings = run_checks(check_context(app, names, _previews(app, names)))
    if session.wants_json:
        write_json("check", findings_document(findings))
    else:
        write_findings(findings)
    raise typer.Exit(exit_code(findings))


def _previews(app: App, names: Sequence[str]) -> Sequence[EndpointPreview] | None:
    try:
        with rows_read() as progress:
            return count_rows(app, chosen_endpoints(app.store, names), progress=progress)
    except (StoreError, LedgerError, PreflightRefused):  # the store's own check says what is wrong
        return None


@verbs.command()
def endpoints(context: typer.Context, as_json: Json = False) -> None:
    """List the endpoints that have a timeouts table, with what is done for each.

    A table does not tell dots from underscores: name the endpoint in [[endpoints]] as it is
    called, and it is listed so.

    Examples:
      migrator endpoints
      migrator --store-url postgresql+psycopg://nsb@db/sales endpoints --json
    """
    session = session_of(context)
    with session.opened() as app:
        found = app.store.endpoints()
        configured = {endpoint.name for endpoint in app.settings.endpoints}
        modes = {endpoint.name: app.settings.endpoint(endpoint.name).mode for endpoint in found}
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
