"""Log lines: text on a terminal, JSON elsewhere, and never a password.

Every module logs with the standard library: a constant message and
``extra={"action": …, …}``. The action is one of ``ACTIONS``, which is public and documented;
the other keys are facts. Nothing else in migrator configures logging.
Most verbs write no line, and then structlog is not imported: it is with the first line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, TextIO

from migrator.config import mask

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

ACTIONS: Final[Mapping[str, str]] = {
    "adoption_failed": "a lane of a dead owner could not be finished now; it is tried again",
    "alarm_watch_refused": "the broker user may have no exchange of ours; alarms are seen late",
    "audit_delayed": "the ledger does not take events now; they wait, and the log has them",
    "audit_lost": "events are in the log, but the ledger did not take them before the end",
    "batch_handed_over": "every row of a batch is with the broker, or in quarantine",
    "batch_recovered": "a batch that an earlier process left was taken up again",
    "batches_made_smaller": "a pass took long to reach the levels; fewer rows at a time now",
    "bindings_unknown": "the management API did not tell where an exchange leads; work goes on",
    "broker_node": "several nodes are set: the one that connections go to from now on",
    "canary_failed": "the canary could not measure; it tries again at its next time",
    "canary_late": "probes through the delay levels are late, early or lost; it names the levels",
    "canary_measured": "probes came back through the delay levels in time",
    "claim_ahead_failed": "claiming the next batch in the background failed; it is tried again",
    "claim_resumed": "a claim or release that a crash left half-done is finished",
    "claim_stuck": "a half-done claim or release waits for a person: its store is gone",
    "clock_believed": "the database's clock jumped, and is believed: who says that it is right",
    "command_given": "an operator's command, with who gave it and what came of it",
    "commit_resolved": "what became of a commit that a crash interrupted is known now",
    "database_failed_over": "another database server took over, and nothing committed is missing",
    "destination_held": "a destination cannot be reached; its timeouts wait in the store",
    "destination_reached": "a held destination can be reached again; its timeouts go on",
    "destinations_bound_again": "destinations lost their way from the delays, and have it again",
    "dispatcher_active": "this process sends an endpoint's timeouts from now on",
    "dispatcher_crashed": "a bug ended a dispatcher; the process ends",
    "dispatcher_critical": "a dispatcher has not worked for too long; nothing is lost, all is late",
    "dispatcher_degraded": "a dispatcher met an outage; it begins again after a pause",
    "dispatcher_gave_up": "a dispatcher ended, because an outage lasted too long",
    "dispatcher_lost": "a dispatcher lost its lease; it is a standby now",
    "dispatcher_recovered": "a dispatcher works again after an outage",
    "dispatcher_standby": "another process is the dispatcher; this one waits to take over",
    "dispatcher_work_failed": "background work of a dispatcher failed as its link went away",
    "entries_refused": "the broker user may not use entry exchanges; the native ones are used",
    "error_queue_missing": "the error queue does not exist; a failed message stays where it is",
    "evidence_left": "what a document store kept for recovery could not be removed; harmless",
    "held_not_counted": "what waits in the store could not be counted as `--once` ended; code 5",
    "held_not_looked_at": "the broker did not say whether held destinations exist; tried again",
    "hold_began": "nothing new is claimed, of one endpoint or of all; it says why",
    "hold_ended": "a reason for which nothing was claimed is gone",
    "hook_dropped": "an event was told to no hook, since too many wait or the process ends",
    "hook_failed": "a hook could not be started, or ended with a status other than 0; work goes on",
    "hook_ran": "a hook was run, and ended well",
    "hook_said": "the end of what a hook wrote (debug)",
    "hook_timed_out": "a hook did not end in time, and was killed with all it started",
    "job_failed": "a bug in something scheduled; it is tried again at its next time",
    "job_missed": "something scheduled did not happen in time; how often since the last line",
    "lane_crashed": "a bug ended a lane; the process ends",
    "lane_doubtful": "nobody can tell whether a batch was handed over; its lane stops",
    "lane_gave_up": "a lane kept failing and was given up",
    "lane_lost": "somebody else took a lane; work on it stopped at once",
    "lane_trouble": "something failed; the lane begins again after a pause",
    "lane_unguarded": "the broker user may not declare a lane's guard queue; work goes on without",
    "lease_lost": "a lease could not be kept, because somebody else has it",
    "ledger_adopted": "somebody adopted the ledger while this process worked for it; it ends",
    "ledger_behind": "a database that failed over lacks what was committed; the process ends",
    "ledger_purge_failed": "settled rows could not be purged; it is tried again at its next time",
    "ledger_purged": "rows settled long ago lost their content, as the settings say; how many",
    "message_failed": "a message can not be dealt with; it goes to the error queue",
    "message_renewed": "a message came back so often that the broker may drop it; a copy took over",
    "message_retried": "a message failed; it comes back from a retry queue after a while",
    "messages_taken_in": "messages of a .Timeouts queue were stored, passed on or cleared (debug)",
    "notify_failed": "the service manager could not be told how this process is; work goes on",
    "panic": "a panic limit was passed; the process finishes what it has and ends",
    "pass_abandoned": "a staging pass was given up before its commit; it is done again",
    "pause_kept": "an endpoint was paused before this start, and is still; who, why and since when",
    "preflight_finding": "a check found something to know, or could not look",
    "recall_stuck": "handed-over timeouts stay with the broker: the store they came from is gone",
    "receipt_late": "a receipt takes long: it names the batch, since when and until when, and binds"
    " the levels again",
    "recheck_changed": "the broker's checks, made again, find something else; it says what",
    "reload_refused": "the settings that were read anew are wrong; nothing was changed",
    "reloaded": "the settings were read anew; it names what changed, and what needs a restart",
    "remains_left": "a blob or an entry of a claimed timeout could not be removed; harmless",
    "renew_failed": "a lease could not be renewed this time; it is tried again",
    "rows_held": "how many timeouts wait in the store for a destination, when `--once` ends",
    "rows_refused": "the broker refuses rows of a direct batch, again and again; is a queue full?",
    "run_end_failed": "how a run ended could not be written into the ledger",
    "sagas_cleared": "timeouts of completed sagas were removed from the store",
    "sizes_unknown": "the bodies in Azure Storage may not be listed; a preview says so",
    "stop_requested": "a signal asked the process to end",
    "store_busy": "the store takes requests more slowly; they are repeated when it says so",
    "surrender_failed": "a lease could not be given back; it expires by itself",
    "traces_failed": "a bug: no span could be made of what was done; the work goes on",
    "traces_lost": "the collector did not take spans, or not in time at the end; the work goes on",
    "traces_sent_again": "the collector takes spans again; it says how many were lost",
    "waiting_for_others": "a run that is to end waits for open batches in lanes of other owners",
    "waiting_for_recall": "a recall is under way; nothing is claimed until it is over",
    "web_crashed": "a bug ended the web side; the work goes on, without status and control",
    "web_failed": "a bug: an HTTP request could not be answered",
    "web_listening": "status, metrics and control can be asked for, at these addresses",
    "web_login": "somebody gave the token to the status page, from this address",
    "web_login_refused": "somebody gave a wrong token to the status page, from this address",
    "web_socket_missing": "the usual control socket cannot be had; work goes on without",
    "worker_hangs": "a thread does not go on; the service manager gets no sign of life any more",
}
"""Every log action, with what it tells. Public: renamed or removed only with a notice."""

_NOISY: Final = {
    "alembic": logging.WARNING,
    "apscheduler": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "azure": logging.ERROR,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "opentelemetry": logging.CRITICAL,
    "pika": logging.CRITICAL,
    "urllib3": logging.CRITICAL,
    "uvicorn": logging.CRITICAL,
}
"""Libraries whose lines repeat what we log ourselves, from this level on they are shown."""


def configure(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all log lines to *stream*, in the wanted form; replaces what was configured before.

    Args:
        level: Name of the lowest level that is written: ``info`` …
        form: ``json``, ``text``, or ``auto``: text when *stream* is a terminal.
        stream: None: the process's stderr.
    """
    stream = sys.stderr if stream is None else stream
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_FirstLine(as_text=as_text, has_colours=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, lowest in _NOISY.items():
        logging.getLogger(name).setLevel(lowest)
    logging.captureWarnings(capture=True)


class _FirstLine(logging.Formatter):
    """Makes text, maybe with colours, or JSON, by what the first line has it import."""

    def __init__(self, *, as_text: bool, has_colours: bool) -> None:
        super().__init__()
        self._as_text = as_text
        self._has_colours = has_colours

    def format(self, record: logging.LogRecord) -> str:
        return self._formatter.format(record)

    @cached_property
    def _formatter(self) -> logging.Formatter:
        import structlog

        renderer: Processor = (
            structlog.dev.ConsoleRenderer(colors=self._has_colours)
            if self._as_text
            else structlog.processors.JSONRenderer(default=str)
        )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _redacted_event,
                renderer,
            ],
        )


def _redacted_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Return *event* with everything that looks like a password replaced, at any depth."""
    return {key: masked(value) for key, value in event.items()}


def masked(value: object, shown: Callable[[str], str] = mask) -> object:
    """Return *value* with every text in it as *shown*: what looks like a password is replaced."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {key: masked(inner, shown) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner, shown) for inner in value]
    return shown(str(value)) if isinstance(value, BaseException) else value
