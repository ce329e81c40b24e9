"""``migrator seed``: invented timeouts, for rehearsals and tests; the list of verbs hides it."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import Yes
from migrator.cli.session import confirmed, session_of
from migrator.errors import ConfigError
from migrator.text import counted, grouped, parse_duration

verbs = new_group()


@verbs.command()
def seed(
    context: typer.Context,
    endpoint: Annotated[
        str, typer.Option(metavar="NAME", help="The endpoint that the timeouts belong to.")
    ],
    count: Annotated[int, typer.Option(metavar="N", min=0, help="How many in total.")] = 1000,
    destinations: Annotated[
        str,
        typer.Option(
            metavar="A,B", help="Destination queues, used in turn; default: the endpoint's own."
        ),
    ] = "",
    due_from: Annotated[
        str, typer.Option(metavar="DURATION", help="The first is due after this time.")
    ] = "1s",
    due_to: Annotated[
        str, typer.Option(metavar="DURATION", help="The last is due after this time.")
    ] = "30d",
    bad: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many of them cannot be handed over.")
    ] = 0,
    body_bytes: Annotated[int, typer.Option(metavar="N", min=0, help="Size of each body.")] = 500,
    random_seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The same number makes the same rows.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Write invented timeouts into the store, and create the table if there is none.

    For rehearsals only. Refused if the endpoint has a timeout that was not invented, or if a run
    has moved timeouts of it.

    Examples:
      migrator seed --yes --endpoint Sales --count 1000
      migrator seed --yes --endpoint Sales --destinations Billing,Shipping --due-to 1h --bad 5
    """
    from migrator.app.seed import open_seeding
    from migrator.stores.sql.seeding import SeedDocument

    session = session_of(context)
    due = _span(due_from, due_to)
    if bad > count:
        raise ConfigError(f"--bad {bad} is more than --count {count}")
    queues = [name.strip() for name in destinations.split(",") if name.strip()] or [endpoint]
    confirmed(yes=yes, what=f"{counted(count, 'invented timeout')} would be written into the store")
    with open_seeding(session.settings()) as seeding:
        seeding.refuse_real(endpoint)
        rows = seeding.invent(
            endpoint,
            count,
            due=due,
            destinations=queues,
            body_bytes=body_bytes,
            seed=random.getrandbits(63) if random_seed is None else random_seed,
            bad=bad,
        )
        source, written = seeding.write(endpoint, rows)
    session.tell(
        SeedDocument(endpoint=endpoint, source=source, rows=written, bad=bad),
        f"{counted(written, 'invented timeout is', 'invented timeouts are')} in {source}, "
        f"{grouped(bad)} of them bad",
    )


def _span(due_from: str, due_to: str) -> tuple[timedelta, timedelta]:
    found = []
    for name, text in (("--due-from", due_from), ("--due-to", due_to)):
        try:
            found.append(parse_duration(text.removeprefix("-")) * (-1 if text[:1] == "-" else 1))
        except ValueError as exc:
            raise ConfigError(f"{name} {text!r} {exc}") from exc
    if found[0] > found[1]:
        raise ConfigError(f"--due-from {due_from} must not be later than --due-to {due_to}")
    return found[0], found[1]
