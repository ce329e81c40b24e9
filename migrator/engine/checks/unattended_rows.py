"""Are there rows that nobody will send?

With a cutoff, rows that are overdue or nearly due are left to the timeout manager. If none runs,
they would lie there for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.domain.preview import EndpointPreview
from migrator.domain.timeouts import EndpointName
from migrator.ports import BrokerFacts

NAME: Final = "unattended-rows"


def check(
    broker: BrokerFacts, previews: Sequence[EndpointPreview] | None, *, cutoff: timedelta
) -> Iterator[Finding]:
    """Warn when rows are left to a timeout manager that does not run; they stay, none is lost."""
    if not cutoff:
        yield _finding(Level.OK, "cutoff", "it is 0s: overdue rows are sent by migrator itself")
        return
    if previews is None:
        yield _finding(Level.NOT_CHECKED, "rows due soon", "the rows were not looked at")
        return
    for preview in previews:
        yield _about(preview, has_manager=_has_manager(broker, preview.endpoint))


def _has_manager(broker: BrokerFacts, endpoint: EndpointName) -> bool:
    # an endpoint that was merely discovered shows its dots as underscores
    names = {f"{name}.TimeoutsDispatcher" for name in (endpoint, endpoint.replace("_", "."))}
    probes = broker.queues(sorted(names)).values()
    return any(probe is not None and probe.consumers > 0 for probe in probes)


def _about(preview: EndpointPreview, *, has_manager: bool) -> Finding:
    if has_manager:
        text = f"its timeout manager runs and sends the {preview.left} rows left to it"
        return _finding(Level.OK, preview.endpoint, text)
    nobody = f"nobody consumes {preview.endpoint}.TimeoutsDispatcher"
    if preview.left:
        return _finding(
            Level.WARNING,
            preview.endpoint,
            f"{preview.left} rows are overdue or due soon and would be left, but {nobody}",
            "start its timeout manager, or use --cutoff 0s",
        )
    return _finding(
        Level.WARNING,
        preview.endpoint,
        f"{nobody}: rows that come closer than the cutoff while migrator is down would stay",
        "use --cutoff 0s once no timeout manager runs any more",
    )


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
