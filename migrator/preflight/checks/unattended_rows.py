"""Are there rows that nobody will send?

With a cutoff, rows that are overdue or nearly due are left to the timeout manager. If none runs,
they would lie there for ever, unless our dispatcher sends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from migrator.nservicebus.satellites import dispatcher_queue
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts
from migrator.stores.endpoints import EndpointPreview

NAME: Final = "unattended-rows"


def check(
    broker: BrokerFacts,
    previews: Sequence[EndpointPreview] | None,
    *,
    cutoff: timedelta,
    sends_near_due: bool = False,
    queues: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Warn when rows are left to a timeout manager that does not run; they stay, none is lost.

    Args:
        broker: Whom to ask.
        previews: Of endpoints whose rows are migrated; None: they were not looked at.
        cutoff: Rows due sooner are left.
        sends_near_due: Whether our dispatcher sends those.
        queues: Input queues of endpoints, where they are known.
    """
    if sends_near_due or (previews is not None and not previews):
        yield _finding(Level.OK, "rows due soon", "migrator itself sends them")
        return
    if not cutoff:
        yield _finding(Level.OK, "cutoff", "it is 0s: overdue rows are sent by migrator itself")
        return
    if previews is None:
        yield _finding(Level.NOT_CHECKED, "rows due soon", "the rows were not looked at")
        return
    for preview in previews:
        yield _about(broker, preview, _inputs(preview.endpoint, queues or {}))


def _inputs(endpoint: EndpointName, queues: Mapping[str, str]) -> Sequence[str]:
    if endpoint in queues:
        return [queues[endpoint]]
    # an endpoint that was merely discovered shows its dots as underscores
    return sorted({endpoint, endpoint.replace("_", ".")})


def _about(broker: BrokerFacts, preview: EndpointPreview, inputs: Sequence[str]) -> Finding:
    queues = [dispatcher_queue(QueueName(name)) for name in inputs]
    probes = broker.queues(queues).values()
    if any(probe is not None and probe.consumers > 0 for probe in probes):
        text = f"its timeout manager runs and sends the {preview.left} rows left to it"
        return _finding(Level.OK, preview.endpoint, text)
    nobody = f"nobody consumes {queues[-1]}"
    if preview.left:
        return _finding(
            Level.WARNING,
            preview.endpoint,
            f"{preview.left} rows are overdue or due soon and would be left, but {nobody}",
            "start its timeout manager, or use --cutoff 0s or --near-due dispatch",
        )
    return _finding(
        Level.WARNING,
        preview.endpoint,
        f"{nobody}: rows that come closer than the cutoff while migrator is down would stay",
        "use --cutoff 0s or --near-due dispatch once no timeout manager runs any more",
    )


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
