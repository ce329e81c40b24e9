"""``migrator preview``: what would a run do, and what would go wrong? It changes nothing."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Annotated, Final

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import (
    HAND_OVER,
    AllEndpoints,
    Endpoints,
    Exact,
    Format,
    Output,
    Rate,
    settings,
)
from migrator.cli.output import (
    chosen_form,
    json_text,
    rows_read,
    write_drawn,
    write_result,
)
from migrator.cli.session import DEBUG, about_of, endpoint_names, session_of
from migrator.errors import PreflightRefused

if TYPE_CHECKING:
    from migrator.reports.pages import About
    from migrator.reports.plan import Plan

verbs = new_group()

_WIDTH: Final = 100
"""Characters, where there is no terminal."""


@verbs.command()
@settings(*HAND_OVER)
def preview(
    context: typer.Context,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    rate: Rate = None,
    exact: Exact = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the broker; read only store and ledger.")
    ] = False,
    form: Format = "table",
    output: Output = None,
) -> None:
    """Show what a run would do with each endpoint's timeouts, and what would go wrong.

    Reads store, ledger and broker, and changes nothing. What cannot be asked is listed as not
    checked, which is not the same as fine.

    Examples:
      migrator preview
      migrator preview --endpoint Sales --exact
      migrator preview --all-endpoints --cutoff 0s --horizon 30d
      migrator preview --offline --json --output preview.json
      migrator preview --endpoint Sales --format html --output preview.html

    Exit codes: 0 a run would start; 3 it would be refused; 4 store or broker unreachable;
      7 it would serve some of the endpoints, and others once they are refused no more.
    """
    from migrator.app.preview import open_planning
    from migrator.cli.findings import exit_code
    from migrator.cli.plan import drawn_plan

    session = session_of(context)
    form = chosen_form(form, output, wants_json=session.wants_json)
    given = session.settings()
    names = endpoint_names(given, endpoint, all_endpoints=all_endpoints)
    with open_planning(given) as planning, rows_read() as progress:
        plan = planning.plan(
            names, progress=progress, rate=rate, is_exact=exact, asks_broker=not offline
        )
        text = json_text(plan.document.values)
        if form == "html":
            about = about_of(session, given, planning.ledger, endpoint, is_all=all_endpoints)
            text = _page(plan, about)
    if form != "table":
        write_result(text, output)
    else:
        stream = None if output is None else StringIO()
        for drawn in drawn_plan(plan, is_whole=session.verbosity >= DEBUG):
            write_drawn(drawn, stream=stream, width=_WIDTH)
        if stream is not None:
            write_result(stream.getvalue().rstrip("\n"), output)
    raise typer.Exit(exit_code(plan.findings, plan.served))


def _page(plan: Plan, about: About) -> str:
    from migrator.reports.plan import PreviewDocument
    from migrator.reports.preview import preview_page

    document, counted = plan.document, plan.preview
    if counted is None or not isinstance(document, PreviewDocument):
        raise PreflightRefused("the rows could not be counted; --format table says why")
    return preview_page(document, about=about, attended=counted.attended)
