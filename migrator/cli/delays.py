"""``migrator delays``: the broker's native delay levels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from migrator.cli.lazy import LazyGroup, new_group
from migrator.cli.options import DryRun, Yes, settings
from migrator.cli.output import say, write_document, write_drawn, write_table
from migrator.cli.session import DEBUG, Session, confirmed, duration, session_of
from migrator.delays.routing import infrastructure, parse_levels, probe_delay_s
from migrator.errors import ConfigError, ExitCode
from migrator.text import counted, grouped, span_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from migrator.app.delays import Delays
    from migrator.decommission.levels import DelaysFound
    from migrator.delays.capacity import MeasuredCapacity, SentBurst
    from migrator.delays.depths import LevelDepth, LevelDepths
    from migrator.delays.probe import ProbeRun


class Verbs(LazyGroup):
    """Those with a module of their own."""

    lines: ClassVar = {
        "migrate": "Move waiting messages from the v1 delays into the v2 delays.",
        "transfer": "Move waiting messages into the delays of another broker.",
    }
    order: ClassVar = ("create", "show", "probe", "migrate", "transfer", "delete")
    modules: ClassVar = {"migrate": "transfer"}


verbs = new_group(
    "The native delay levels: create, show, probe, migrate, transfer, delete.", cls=Verbs
)


Levels = Annotated[
    str,
    typer.Option(metavar="N,N…", help="Which levels; the probe of level n waits for 2ⁿ seconds."),
]
Patience = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long to wait; a probe that is not back by then counts as lost.",
    ),
]


def _opened(session: Session) -> AbstractContextManager[Delays]:
    from migrator.app.delays import open_delays

    return open_delays(session.settings())


@verbs.command(short_help="Create every exchange, queue and binding of the delays.")
@settings("delays")
def create(context: typer.Context) -> None:
    """Declare every exchange, queue and binding, exactly as the endpoints' installers do.

    Safe to repeat. Nothing else in migrator ever creates them.

    Examples:
      migrator delays create
      migrator delays create --delays v1
    """
    from migrator.delays.documents import CreateDocument

    session = session_of(context)
    with _opened(session) as delays:
        version = delays.version
        created = delays.create()
        existed = len(infrastructure(version).exchanges) + len(infrastructure(version).queues)
        existed -= created
    document = CreateDocument(delays=version, created=created, existed=existed)
    found = f"exchanges and queues created: {grouped(created)}, existed: {grouped(existed)}"
    session.tell(document, f"delays {version} are complete: {found}")


WatchFor = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long to watch a level that holds messages, before it counts as frozen.",
    ),
]


@verbs.command(short_help="Show what waits in each level, what is wrong and how to fix it.")
@settings("delays")
def show(
    context: typer.Context,
    watch_for: WatchFor = "10s",
) -> None:
    """Show what waits in each delay level, what is wrong, and how to fix it.

    Takes no message out and changes nothing. Watches for a while only when messages are held.
    Without the management API only ready messages are counted; all else is shown as not known.

    Examples:
      migrator delays show
      migrator delays show --delays v1 --watch-for 30s --json

    Exit codes: 0 nothing refused; 3 refused; 4 broker unreachable.
    """
    from migrator.cli.findings import drawn_findings, exit_code
    from migrator.preflight.context import verdict
    from migrator.preflight.documents import DelaysDocument, FindingsDocument
    from migrator.status.document import levels_document

    session = session_of(context)
    watch_s = duration("--watch-for", watch_for).total_seconds()
    depths: LevelDepths | None = None
    with _opened(session) as delays:
        findings = delays.check(watch_s=watch_s)
        if exit_code(findings) is not ExitCode.UNREACHABLE:
            depths = delays.depths()
    if session.wants_json:
        document = FindingsDocument(verdict=verdict(findings), findings=findings)
        if depths is not None:
            told = {**levels_document(depths), **dict(document)}
            document = DelaysDocument.model_validate(told)
        write_document(document)
    else:
        if depths is not None and not depths.is_absent:
            write_drawn(level_table(depths))
        for drawn in drawn_findings(findings, is_whole=session.verbosity >= DEBUG):
            write_drawn(drawn)
        say(f"verdict: {verdict(findings)}")
        if depths is not None and depths.gap:
            say(f"not known: {depths.gap}")
    raise typer.Exit(exit_code(findings))


@verbs.command(short_help="Send a probe through each level, and show how late it comes.")
@settings("delays")
def probe(
    context: typer.Context,
    levels: Levels = "0,1,2,3",
    patience: Patience = "30s",
    capacity: Annotated[
        bool,
        typer.Option(
            "--capacity",
            help="Measure how fast levels let messages go, and record it in the ledger.",
        ),
    ] = False,
) -> None:
    """Send one probe through each level into a queue of its own, and show how late each arrived.

    The queue is removed; if a probe is lost it stays for a day, in case it still arrives.
    With --capacity, two bursts of 500 messages are sent instead, three times.

    Examples:
      migrator delays probe
      migrator delays probe --levels 0,5 --patience 1m --json
      migrator delays probe --capacity

    Exit codes: 0 all came back in time; 3 one is lost or was early, or nothing was sent because
    the delays are not as they must be; 4 broker unreachable.
    """
    from migrator.delays.documents import ProbeDocument

    session = session_of(context)
    if capacity:
        _measure_capacity(session)
        return
    patience_s = duration("--patience", patience).total_seconds()
    chosen = _probed(levels, patience, patience_s)
    with _opened(session) as delays:
        run = delays.probe(chosen, timeout_s=patience_s)
    if session.wants_json:
        write_document(ProbeDocument.model_validate(run))
    else:
        _show_run(run)
    raise typer.Exit(ExitCode.DONE if run.is_fine else ExitCode.PREFLIGHT_REFUSED)


def _probed(levels: str, patience: str, patience_s: float) -> Sequence[int]:
    try:
        chosen = parse_levels(levels)
    except ValueError as exc:
        raise ConfigError(f"--levels {levels!r} {exc}") from exc
    too_long = [level for level in chosen if probe_delay_s(level) >= patience_s]
    if too_long:
        level = too_long[0]
        raise ConfigError(
            f"a probe through level {level} takes {probe_delay_s(level)} s, more than --patience "
            f"{patience} allows; nothing was sent"
        )
    return chosen


def _show_run(run: ProbeRun) -> None:
    write_table(
        ("level", "delay", "late by", "arrival"),
        (
            (
                f"{probe.level:02d}",
                f"{probe.delay_s} s",
                "" if probe.late_s is None else f"{probe.late_s * 1000:.0f} ms",
                probe.arrival.replace("_", " "),
            )
            for probe in run.probes
        ),
    )
    if run.left_queue:
        say(f"queue {run.left_queue} waits for lost probes, and the broker deletes it after a day")


# ── how fast they let go ───────────────────────────────────────────────────────────────────────


_KINDS: Final = range(1, 8)
"""Exchanges passed, for the table: what a message of up to 64 seconds can pass."""


def _measure_capacity(session: Session) -> None:
    from migrator.delays.documents import CapacityDocument

    with _opened(session) as delays:
        found = delays.measure_capacity()
    if session.wants_json:
        is_kept = found.problem is None
        write_document(CapacityDocument.model_validate({**found.document, "is_kept": is_kept}))
    else:
        _show_capacity(found.measured)
    if found.problem is not None:
        say(f"not recorded in the ledger: {found.problem}")
        raise typer.Exit(found.problem.exit_code)


def _show_capacity(measured: MeasuredCapacity) -> None:
    bursts = {burst.exchanges: burst for burst in measured.bursts}
    write_table(
        ("exchanges passed", "such as a delay of", "let go", "measured"),
        (
            (
                str(exchanges),
                f"{probe_delay_s(exchanges - 1)} s",
                f"{grouped(round(measured.per_second(exchanges)))}/s",
                _burst_text(bursts[exchanges]) if exchanges in bursts else "",
            )
            for exchanges in _KINDS
        ),
    )
    say(f"each exchange costs a level {measured.exchange_cost_s * 1000:.3f} ms")


def _burst_text(burst: SentBurst) -> str:
    return f"{grouped(round(burst.per_second))}/s" + (
        "" if burst.is_released_slower else " or more"
    )


# ── the levels as a picture ────────────────────────────────────────────────────────────────────


_BAR_CHARS: Final = 16
_HELD: Final = "bold red"
_COLUMNS: Final = ("level", "for delays of", "", "ready", "unacked", "held", "consumers", "")
_NUMBERS: Final = frozenset({"for delays of", "ready", "unacked", "held", "consumers"})


def level_table(depths: LevelDepths) -> Table:
    """Return the depths as a table, level 27 first, with a last line of sums."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=False)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    most = max((step.known for step in depths.steps), default=0)
    for step in depths.steps:
        table.add_row(*_cells(step, most), style="dim" if step.known == 0 else "")
    table.add_row("", "total", "", *map(grouped, depths.totals.values()), "", style="bold")
    return table


def _cells(step: LevelDepth, most: int) -> list[Text]:
    from rich.text import Text

    counts = (step.ready, step.unacknowledged, step.held, step.consumers)
    texts = [Text(grouped(count) if step.exists else "") for count in counts]
    if step.held:
        texts[2].stylize(_HELD)
    return [
        Text(f"{step.level:02d}"),
        Text(f"{span_text(step.wait_s)} … {span_text(step.longest_delay_s)}"),
        _bar(step, most),
        *texts,
        _remark(step),
    ]


def _bar(step: LevelDepth, most: int) -> Text:
    """Return the bar; whatever is there gets a mark, however little it is beside the rest."""
    from rich.text import Text

    held, unacknowledged, ready = (
        max(1, _BAR_CHARS * count // most) if count else 0
        for count in (step.held, step.unacknowledged, step.ready)
    )
    held = min(held, _BAR_CHARS)
    unacknowledged = min(unacknowledged, _BAR_CHARS - held)
    ready = min(ready, _BAR_CHARS - held - unacknowledged)
    bar = Text("├")
    bar.append("█" * ready, style="green")
    bar.append("▒" * unacknowledged, style="yellow")
    bar.append("▓" * held, style=_HELD)
    bar.append("─" * (_BAR_CHARS + 1 - len(bar)))
    bar.append("┤")
    return bar


def _remark(step: LevelDepth) -> Text:
    from rich.text import Text

    if not step.exists:
        return Text("missing", style=_HELD)
    if step.may_freeze:
        return Text("may be frozen", style=_HELD)
    return Text("not passed on", style=_HELD) if step.held else Text("")


# ── delays delete ─────────────────────────────────────────────────────────────────────────────────


@verbs.command(short_help="Delete exchanges and queues of a generation, once it is empty.")
@settings("delays")
def delete(
    context: typer.Context,
    even_if_bound: Annotated[
        bool, typer.Option("--even-if-bound", help="Even if endpoints are bound to the delays.")
    ] = False,
    settle: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long the broker's counts may lag behind."),
    ] = "12s",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete every exchange and queue of a generation, once no message is in it.

    Refused while a level holds anything, an exchange of migrator leads into it, or an endpoint is
    bound to it. If anything goes wrong meanwhile, or a message arrives, everything is declared
    again. Needs the management API. After a crash, run the same command again.

    Examples:
      migrator delays delete --delays v1 --dry-run
      migrator delays delete --delays v1 --yes
      migrator delays delete --delays v1 --even-if-bound --yes

    Exit codes: 0 deleted, or nothing prevents it; 3 refused, also meanwhile;
      4 broker unreachable.
    """
    from migrator.decommission.documents import delete_document

    session = session_of(context)
    settle_s = duration("--settle", settle).total_seconds()
    with _opened(session) as delays:
        if not dry_run:
            what = f"delays {delays.version} would be deleted, for every endpoint"
            confirmed(yes=yes, what=what)
        removal = delays.removal(settle_s=settle_s)
        found = removal.look()
        obstacles = list(found.obstacles(even_if_bound=even_if_bound))
        is_meant = not (dry_run or obstacles or found.is_absent)
        if is_meant:
            removal.delete(even_if_bound=even_if_bound)
    if session.wants_json:
        write_document(delete_document(found, obstacles, is_dry_run=dry_run, is_deleted=is_meant))
    else:
        _show_deletion(found, obstacles, deleted=is_meant)
    raise typer.Exit(ExitCode.PREFLIGHT_REFUSED if obstacles else ExitCode.DONE)


def _show_deletion(found: DelaysFound, obstacles: list[str], *, deleted: bool) -> None:
    parts = (counted(len(found.exchanges), "exchange"), counted(len(found.queues), "queue"))
    what = f"delays {found.version}, {' and '.join(parts)}"
    if found.bound:
        bound = [(b.target.name, str(b.target.kind), b.key, b.source) for b in found.bound]
        write_table(("bound to the delays", "kind", "key", "from"), bound)
    if found.is_absent:
        say(f"delays {found.version} do not exist here")
    elif deleted:
        say(f"deleted: {what}")
    elif not obstacles:
        say(f"nothing prevents deleting {what}")
    else:
        for obstacle in obstacles:
            say(obstacle)
        say(f"not deleted: {what}")
        if found.is_partly_gone:
            say(
                f"some of it is missing: `migrator delays create --delays {found.version}` "
                "creates it"
            )
