"""The pages of what a daemon answers: its metrics, and its paths."""

from __future__ import annotations

from collections.abc import Iterator

from dev.reference.markdown import page, table
from migrator.web.measures import GROUPS, Measure


def metrics() -> str:
    """Return every metric by what it is about."""
    return page(
        "Metrics",
        "What `GET /metrics` answers; how to scrape and how to read them is on a "
        "[page of its own](../metrics.md).",
        *_groups(),
        "`process_resident_memory_bytes`, `process_cpu_seconds_total`, `process_open_fds` and the "
        "other `process_` metrics of Prometheus' own library are there as well.\n"
        "A histogram shows `_bucket`, `_count` and `_sum`; a `_created` beside a counter or a "
        "histogram is when it began.",
    )


def _groups() -> Iterator[str]:
    for title, measures in GROUPS.items():
        yield f"## {title}"
        yield table(("metric", "kind", "labels", "what it tells"), map(_row, measures))


def _row(measure: Measure) -> tuple[str, str, str, str]:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"`{measure.name}`", measure.kind, labels, measure.what
