"""What the reference says and the code does not: one sentence for each public name.

The names themselves come from the code. The generator refuses to write a page while a name has
no sentence here, and a test refuses sentences about names that are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from migrator.errors import ExitCode
from migrator.ledger.states import BatchState, Event, RowState
from migrator.web.auth import MOST_WRONG, WRONG_S
from migrator.web.connections import MOST_CONNECTIONS, MOST_OF_ADDRESS
from migrator.web.control import TIMEOUT_S
from migrator.web.http import BODY_TIMEOUT_S, LARGEST_BODY_BYTES

HTTP_CODES: Final[Mapping[int, str]] = {
    400: "The body is not a command.",
    401: "The token is missing or wrong.",
    403: "No token is set, the page is of another origin, or the host name is not one of this "
    "machine.",
    404: "There is no such path, or `place` is another ledger's; 401 or 403 without a token.",
    405: "The path does not support this method; 401 or 403 without a token.",
    408: f"The body did not come within {BODY_TIMEOUT_S:g} s.",
    413: f"The body is larger than {LARGEST_BODY_BYTES // 1024} KiB.",
    415: "The body is not JSON.",
    429: f"The token is wrong, and {MOST_WRONG} other wrong ones already wait for their answer, "
    f"one of which is sent every {WRONG_S:g} s; the right token is always accepted, at once.",
    500: "A bug; the log has `web_failed`.",
    503: "Another command is under way, and this one was not started; or the ledger cannot be "
    f"read; or more than {MOST_CONNECTIONS} connections are open, or {MOST_OF_ADDRESS} of one "
    "address; `/live` and `/ready` are answered all the same.",
    504: f"The daemon did not answer within {TIMEOUT_S:g} s, and may still carry the command out.",
}
"""Why a daemon does not answer what was asked."""

LOG_ACTIONS: Final[Mapping[str, str]] = {
    "adoption_failed": "a lane of a dead owner could not be finished now; it is tried again",
    "alarm_watch_refused": "the broker user may not declare migrator's exchange; alarms are seen "
    "late",
    "attempt_abandoned": "an attempt was given up before its commit; the batch is staged again",
    "audit_delayed": "the ledger does not accept events now; they are in the log and are written "
    "later",
    "audit_lost": "events are in the log, but the ledger did not accept them before the process "
    "ended",
    "batch_elsewhere": "a batch waits for a daemon that is connected to another broker",
    "batch_handed_over": "every row of a batch is with the broker, or in quarantine",
    "batch_left": "`run --once` leaves a batch to a daemon that is connected to another broker",
    "batch_passed_on": "a claimed batch is left to another lane, or to another daemon",
    "batch_recovered": "a batch that an earlier process left open was taken over",
    "batches_made_smaller": "an attempt took long to reach the levels; fewer rows at a time now",
    "bindings_unknown": "the management API did not say where an exchange leads; work continues",
    "broker_node": "several nodes are set: the one that connections use from now on",
    "capacity_known": "how fast the delay levels let messages go: the pace of hand-over follows it",
    "capacity_unknown": "how fast the delay levels let messages go is not known; the usual speed "
    "is assumed; the line says why",
    "claim_ahead_failed": "claiming the next batch in the background failed; it is tried again",
    "claim_resumed": "a claim or release that a crash left half-done is finished",
    "claim_stuck": "a half-done claim or release needs a decision: its store is gone",
    "claim_waits": "a half-done claim or release waits for its store; it is tried again",
    "clock_believed": "the database's clock jumped, and its new time is trusted; the line says on "
    "whose word",
    "command_given": "an operator's command: who gave it, and the answer",
    "commit_resolved": "the outcome of a commit that a crash interrupted is known now",
    "content_kept": "everything is finished, and the ledger keeps headers and bodies of what was "
    "moved, because `ledger.purge_after` is not set",
    "critical_load": "a critical limit was passed; the process finishes what it has and ends",
    "database_failed_over": "another database server took over, and nothing committed is missing",
    "destination_held": "a destination cannot be reached; its timeouts wait in the store",
    "destination_reached": "a held destination can be reached again; its timeouts are handed over",
    "destinations_bound_again": "destinations had lost their binding to the delays, and are bound "
    "again",
    "destinations_parked": "once a minute while any destination is parked: which, why, and what to "
    "do; an error if only an operator can end it",
    "dispatcher_active": "this process sends an endpoint's timeouts from now on",
    "dispatcher_crashed": "a bug ended a dispatcher; the process ends",
    "dispatcher_critical": "a dispatcher has not worked for too long; nothing is lost, its "
    "timeouts are late",
    "dispatcher_degraded": "a dispatcher met an outage; it starts again after a pause",
    "dispatcher_gave_up": "a dispatcher ended, because an outage lasted too long",
    "dispatcher_lost": "a dispatcher lost its lease; it is a standby now",
    "dispatcher_recovered": "a dispatcher works again after an outage",
    "dispatcher_standby": "another process is the dispatcher; this one waits to take over",
    "dispatcher_work_failed": "background work of a dispatcher failed because its connection was "
    "lost",
    "endpoint_admitted": "no check refuses an endpoint any more; it is served from now on",
    "endpoint_finished": "nothing of an endpoint is left to move; the text says what stays in the "
    "store and who sends it, a warning if nobody does or rows are in quarantine",
    "endpoint_not_finished": "an endpoint that was finished has rows to move again",
    "endpoint_refused": "a check of the start refuses an endpoint; it waits, the others are "
    "served; once a minute as long as it lasts",
    "entries_refused": "the broker user may not use entry exchanges; the native ones are used",
    "error_queue_missing": "the error queue does not exist; a failed message stays where it is",
    "evidence_left": "what a document store kept for recovery could not be removed; harmless",
    "finished_not_known": "whether endpoints are finished could not be read now; it is tried again",
    "held_not_counted": "what waits in the store could not be counted when `--once` ended; exit "
    "code 5",
    "held_not_looked_at": "the broker did not say whether held destinations exist; it is asked "
    "again",
    "hold_began": "nothing new is claimed, for one endpoint or for all; the line says why",
    "hold_ended": "a reason for which nothing was claimed has ended",
    "hook_dropped": "an event was dropped without running its hook: too many wait, or the process "
    "ends",
    "hook_failed": "a hook could not be started, or ended with a status other than 0; work "
    "continues",
    "hook_ran": "a hook was run, and ended with status 0",
    "hook_said": "the end of the output of a hook (debug)",
    "hook_timed_out": "a hook did not end in time, and was killed with all it started",
    "job_failed": "a bug in a scheduled job; it is tried again at its next time",
    "job_missed": "a scheduled job did not run in time; how often since the last line",
    "lane_crashed": "a bug ended a lane; the process ends",
    "lane_doubtful": "it is not known whether a batch was handed over; its lane stops",
    "lane_gave_up": "a lane kept failing and was given up",
    "lane_lost": "another process took a lane; work on it stopped at once",
    "lane_trouble": "something failed; the lane starts again after a pause",
    "lane_unguarded": "the broker user may not declare a lane's guard queue; work continues "
    "without",
    "lease_lost": "a lease could not be kept, because another process has it",
    "ledger_adopted": "the ledger was adopted while this process worked for it; the process ends",
    "ledger_behind": "a database that failed over lacks what this process committed; the process "
    "ends",
    "ledger_purge_failed": "settled rows could not be purged; it is tried again at its next time",
    "ledger_purged": "bodies and headers of rows settled long ago were deleted, as set; how many",
    "message_failed": "a message cannot be processed; it goes to the error queue",
    "message_renewed": "a message came back so often that the broker may drop it; a copy replaces "
    "it",
    "message_retried": "a message failed; it comes back from a retry queue after a while",
    "messages_taken_in": "messages of a .Timeouts queue were stored, forwarded or cleared (debug)",
    "notify_failed": "the service manager could not be notified; work continues",
    "pace_full": "hand-over is not limited to the release rate of the delay levels; timeouts may "
    "be late",
    "paced": "hand-over waits for the delay levels: how long batches waited since the last line",
    "pause_kept": "an endpoint was paused before this start and still is; who, why and since when",
    "preflight_finding": "a check found something to know, or could not check",
    "probe_failed": "the delays could not be probed; it is tried again at the next time",
    "probe_late": "probes through the delay levels are late, early or lost; the line names the "
    "levels",
    "probe_measured": "probes came back through the delay levels in time",
    "quarantine_limit_passed": (
        "`run --once` left an endpoint: too many of its rows went to quarantine; it says how many"
    ),
    "recall_refused": (
        "handed-over timeouts stay with the broker: their table does not take them back"
    ),
    "recall_stuck": "handed-over timeouts stay with the broker: the store they came from is gone",
    "receipt_late": "a receipt takes long: the line names the batch, since when and until when it "
    "is awaited, and the levels are bound again",
    "recheck_changed": "repeating the broker's checks gave another result; the line says what",
    "refused_not_checked": "refused endpoints could not be checked now; it is tried again",
    "reload_refused": "the settings that were reloaded are wrong; nothing was changed",
    "reloaded": "the settings were reloaded; the line names what changed, and what needs a restart",
    "remains_left": "a blob or an entry of a claimed timeout could not be removed; harmless",
    "renew_failed": "a lease could not be renewed this time; it is tried again",
    "row_left": "one row cannot be claimed, and stays in the store for now; the others go on",
    "rows_held": "how many timeouts wait in the store for a destination, when `--once` ends",
    "rows_locked": "how many timeouts `--once` leaves because other transactions have them locked",
    "rows_refused": "the broker refuses rows of a direct batch repeatedly; is a queue full?",
    "run_end_failed": "the end of a run could not be recorded in the ledger",
    "sagas_cleared": "timeouts of completed sagas were removed from the store",
    "sizes_unknown": "this user may not list bodies in Azure Storage; a preview says so",
    "stop_requested": "a signal asked the process to end",
    "store_busy": "the store is busy and takes requests more slowly; they are repeated when it "
    "says so",
    "strays_moved": "messages that are not migrator's were in a queue of a lane; they are in the "
    "poison queue now",
    "strays_not_moved": "the same, but the poison queue does not take them now; it is tried again",
    "surrender_failed": "a lease could not be released; it will expire",
    "table_failing": "the table of an endpoint fails or is locked; the endpoint waits, the others "
    "go on; once a minute as long as it lasts",
    "table_left": "with `--once`, an endpoint was left because its table fails or is locked",
    "waiting_for_locks": "a run that is to end waits for rows that other transactions have locked",
    "waiting_for_others": "a run that is to end waits for open batches in lanes of other owners",
    "waiting_for_recall": "a recall is under way; nothing is claimed until it is over",
    "web_crashed": "a bug ended the web server; work continues, without status and control",
    "web_failed": "a bug: an HTTP request could not be answered",
    "web_listening": "status, metrics and control are available, at these addresses",
    "web_login": "somebody logged in to the status page, from this address",
    "web_login_refused": "somebody gave a wrong token to the status page, from this address",
    "web_socket_missing": "the default control socket cannot be used; work continues without it",
    "work_interrupted": "a thread ended before all was answered; the next start goes on with it",
    "worker_hangs": "a thread hangs; the systemd watchdog is no longer fed",
}
"""Every log action, with what it tells. Public: renamed or removed only with a notice."""

EXIT_CODES: Final[Mapping[ExitCode, tuple[str, str]]] = {
    ExitCode.DONE: ("done", "nothing to do"),
    ExitCode.BUG: ("a bug", "run it again with `-vv` and report what it prints"),
    ExitCode.USAGE: (
        "usage or settings; nothing was started",
        "correct what the message lists; `migrator config` shows where each value came from",
    ),
    ExitCode.PREFLIGHT_REFUSED: (
        "preflight or a running daemon refused; nothing was changed, or the message lists what was",
        "do what the message says, then `migrator preview`",
    ),
    ExitCode.UNREACHABLE: (
        "store, broker or daemon unreachable, or it did not do what was asked",
        "fix the cause and run it again; the ledger knows where it stopped",
    ),
    ExitCode.QUARANTINED: (
        "done, but rows are in quarantine, or wait in the store for a destination that cannot be "
        "reached, or because other transactions have them locked",
        "`migrator quarantine list`, then [reasons](quarantine-reasons.md); `migrator status` "
        "names the destinations; run it again once those transactions have ended",
    ),
    ExitCode.DOUBTFUL: (
        "the outcome of a batch is doubtful, or `verify` found contradictions",
        "`migrator db resolve`, then [decide](../what-if.md#exit-code-6-a-batch-is-doubtful)",
    ),
    ExitCode.PARTIAL: (
        "done for some endpoints alone: others are refused, or their tables cannot be asked now",
        "do what the message says of them, and run it again; nothing of them was changed",
    ),
    ExitCode.INTERRUPTED: (
        "`run --once` was stopped by a signal before it was done",
        "run it again; it continues where it stopped",
    ),
}
"""Meaning, and what to do."""

BATCH_STATES: Final[Mapping[BatchState, str]] = {
    BatchState.CLAIMING: "of a document store: being removed from it",
    BatchState.CLAIMED: "removed from the store, nothing sent",
    BatchState.PARKED: "in the ledger until its destination takes messages; of no lane",
    BatchState.STAGING: "being published to the lane's staging queue",
    BatchState.COMMITTING: "may be on its way from the staging queue into the levels",
    BatchState.PUBLISHING: "being published straight into the levels, or to its destinations",
    BatchState.HANDED_OVER: "with the broker, as it confirmed",
    BatchState.DISPATCHED: "sent to its destinations when due, as the timeout manager would",
    BatchState.DOUBTFUL: (
        "it is not known whether it was handed over; an operator decides with `migrator db resolve`"
    ),
    BatchState.RELEASING: "of a document store: being put back",
    BatchState.RELEASED: "back in the store; or gone with it, if its rows say `written-off`",
}

ROW_STATES: Final[Mapping[RowState, str]] = {
    RowState.QUARANTINED: "in quarantine, with a reason",
    RowState.DISPATCHED: "not used in this version",
    RowState.RELEASED: "back in the store, though its batch is not",
    RowState.RECALLED: "handed over, and back in the store by `migrator rollback`",
    RowState.DISCARDED: "was in quarantine, and is never sent: `migrator quarantine discard`",
}

EVENTS: Final[Mapping[Event, str]] = {
    Event.ALL_TAKEN: "a document store removed every row of the batch, or is gone and an operator "
    "said `claimed`",
    Event.BEGIN_STAGING: "a staged attempt begins",
    Event.BEGIN_PUBLISHING: "a direct attempt or a dispatch begins, or starts again after a crash",
    Event.BEGIN_COMMIT: "the one nack that moves the attempt may be sent from now on",
    Event.RECEIPT: "the receipt came through, or an operator said `handed-over`",
    Event.ALL_SETTLED: "the broker answered for every row",
    Event.ALL_DISPATCHED: "the broker confirmed every row that was not parked",
    Event.ABANDON: "the attempt is given up, or an operator said `claimed`",
    Event.ALL_REDELIVERED: "every message of the attempt came back: it was never moved",
    Event.GIVE_UP: "no proof came in time",
    Event.BEGIN_RELEASE: "`migrator rollback` begins, with a document store",
    Event.RELEASE: "`migrator rollback`",
    Event.UNPARK: "its destination takes messages again, one of its rows tries it, or `migrator "
    "rollback`",
    Event.WRITE_OFF: "an operator said `written-off`: its store is gone",
}

CHECKS: Final[Mapping[str, str]] = {
    "bound-names": "Give one of the two another name, or remove the binding that is not needed.",
    "broker-alarms": "Free memory or disk on that node; migrator waits meanwhile.",
    "broker-reachable": "Check `broker.url`, network, user, password, virtual host and "
    "permissions.",
    "broker-rights": "Let `migrator db grants --broker` print what the user needs. To make no "
    "queues, use `--mode direct` and `dispatch.retry_delays = []`; to bind nothing, set "
    "`broker.all_endpoints_support_delayed_delivery = true`.",
    "broker-version": "Upgrade the broker, enable the feature flag, or use "
    "`--delays v1 --mode direct`; see [RabbitMQ 4](../rabbitmq-4.md#known-bugs-by-version).",
    "capacity": "Make room on the fullest node, or take fewer rows with `--horizon`.",
    "clock-skew": "Synchronise both clocks with NTP; above a minute it is refused.",
    "delay-entities": "`migrator delays create`; what exists with other arguments must be deleted "
    "while empty, and created again.",
    "destinations": "Create the queue, rename it with `--map`, or let migrator bind it.",
    "endpoints": "Correct the name, set its table in `[[endpoints]]`, or check `store.schema`.",
    "exchange-types": "Set `broker.topology = direct` if endpoints use the direct routing "
    "topology; else delete the exchange and start its endpoint with installers enabled.",
    "frozen-levels": "Create the queue and the bindings that the finding names; see "
    "[what if](../what-if.md#a-level-is-frozen).",
    "full-queues": "Have the endpoint process its queue, or raise the queue's limit.",
    "ledger": "`migrator db upgrade`; for a copied database see "
    "[what if](../what-if.md#ledger--was-created-in--exit-code-3).",
    "reply-queues": "Create the queue, and keep it until these rows have arrived; for rows of "
    "version 5 without an address, set the endpoint's `queue` in `[[endpoints]]`.",
    "legacy-table": "Have your DBA run the `CREATE INDEX` that the finding prints; give the "
    "endpoint's own name with `--endpoint` or in `[[endpoints]]`; enter the name of the endpoint "
    "in rows that have none; correct or remove timeouts that are never claimed.",
    "level-leaders": "Start the node that the finding names. If it is up, run there the "
    "`rabbitmqctl eval` of the finding; see [what if](../what-if.md#a-level-has-no-leader).",
    "parked-destinations": "See [the reasons](quarantine-reasons.md); a run goes on by itself once "
    "the reason has gone.",
    "policies": "Narrow the policy's pattern so that it leaves these queues and exchanges alone; "
    "recreate an exchange that itself names an alternate exchange.",
    "satellite-queues": "Name the right `queue` in `[[endpoints]]`, create the error queue, or "
    "disable the endpoint's own timeout manager.",
    "rights": "Let `migrator db grants` print what the user needs.",
    "row-contents": "Correct the rows in the store, see [the reasons](quarantine-reasons.md); "
    "name another queue with `--map` if it is meant.",
    "store-reachable": "Check `store.url`, network, user, password and rights.",
    "due-times": "Set `store.time_zone` to the zone that the finding names; see "
    "[what if](../what-if.md#due-times-are-in-another-time-zone-exit-code-3).",
    "encryption": "Use `amqps://` and `https://` with `broker.tls.verify`; `sslmode=verify-full` "
    "with PostgreSQL, `ssl_ca` with MySQL.",
    "stray-messages": "Find out who sends to migrator's queues; take the messages out of the "
    "poison queue, or purge it.",
    "stuck-levels": "`migrator delays show` checks again, and names the missing destination.",
    "suffix-collisions": "Rename a queue, remove the binding of the shorter name if nothing is "
    "delayed for it, use mode `dispatch`, or set `handover.accept_suffix_collisions = true`.",
    "unattended-rows": "Start the timeout manager, or use `--cutoff 0s` or `--near-due dispatch` "
    "once none runs any more.",
    "vendor-run": "Finish that run, or abort it with the vendor's tool.",
    "ways-out": "Start the endpoint once with installers enabled, or create the queue and the "
    "bindings that the finding names.",
}
"""The remedy."""

TABLES: Final[Mapping[str, str]] = {
    "ledger": "One row: whose ledger this is.",
    "run": "One row per endpoint each time `migrator run` started.",
    "batch": "Rows that are claimed and handed over together; kept for good.",
    "timeout": "Every row ever claimed, with its content, until `migrator db purge`; what a "
    "dispatcher sent, for `dispatch.remember`.",
    "lease": "Who owns which lane, and until when.",
    "held_destination": "Destinations that take no messages; their rows are in parked batches.",
    "event": "The audit trail of what operators did.",
}

VIEWS: Final[Mapping[str, str]] = {
    "progress": "How many rows of each endpoint are in which state.",
    "timeout_status": "Every row with its effective state and its batch, without its content.",
}

COLUMNS: Final[Mapping[str, str]] = {
    "ledger.id": "names this ledger's queues on the broker",
    "ledger.identity": "the database it was created in",
    "ledger.created_at": "when",
    "run.id": "what `--run` takes",
    "run.endpoint": "whose timeouts",
    "run.source": "the table they are in",
    "run.options": "the choices in force, as JSON, without secrets",
    "run.tool_version": "of migrator",
    "run.status": "running, done, stopped or failed; running also after a kill",
    "run.begun_at": "when it began",
    "run.ended_at": "when it ended; empty after a kill",
    "batch.id": "what `migrator db resolve` takes; part of each message's app-id",
    "batch.run_id": "the run that claimed it",
    "batch.endpoint": "whose timeouts",
    "batch.source": "the table they came from",
    "batch.lane": "which lane it belongs to",
    "batch.mode": "staged, direct or dispatch, fixed when it was claimed",
    "batch.state": "see below",
    "batch.attempt": "number of the attempt; part of each message's app-id",
    "batch.size": "rows in it",
    "batch.purged": "how many of them are no longer kept",
    "batch.body_bytes": "their bodies together, in bytes",
    "batch.first_due": "the earliest due time in it",
    "batch.last_due": "the latest due time in it",
    "batch.owner": "the process that claimed it or took it over",
    "batch.ledger_id": "of a document store: the former id of a ledger that was given another one "
    "since; evidence of what was begun before carries it",
    "batch.destination": "of a parked batch: the queue that its rows wait for",
    "batch.lease_token": "the lease it belongs to; fences out earlier owners",
    "timeout.id": "a number of the ledger's own",
    "timeout.source": "the table it came from",
    "timeout.endpoint": "whose timeout",
    "timeout.store_id": "its id in the store",
    "timeout.batch_id": "the batch it is in",
    "timeout.row_index": "its place in the batch; part of its message's app-id",
    "timeout.destination": "the queue it was stored for",
    "timeout.saga_id": "the saga that asked for it",
    "timeout.due": "when it is due, by the stored column",
    "timeout.body": "exactly as stored",
    "timeout.headers": "exactly as stored",
    "timeout.persistence_version": "of the library that stored it",
    "timeout.content_hash": "of body and headers",
    "timeout.state": "only where it differs from its batch",
    "timeout.reason": "why it is in quarantine",
    "timeout.reason_detail": "what was found",
    "timeout.store_version": "of a document store: the version that was read and removed",
    "timeout.store_extra": "of a document store: what else restores the document, as JSON; of "
    "NHibernate: the endpoint as the row spells it",
    "timeout.going_back": "of a document store: the state the row has once its document is back",
    "lease.name": "`lane.0` and so on",
    "lease.owner": "host, process and start of the owner; empty: given back",
    "lease.token": "rises with every change of owner",
    "lease.until": "when it expires, in database time",
    "lease.doing": "what the owner last reported",
    "lease.renewed_at": "its last sign of life",
    "lease.position": "PostgreSQL: timeline and position of the server's log when last taken",
    "lease.serves": "the table whose dispatcher has this lane; empty: a lane of hand-over",
    "held_destination.source": "the table the rows are in",
    "held_destination.destination": "the queue that messages go to, after `--map`",
    "held_destination.endpoint": "whose timeouts",
    "held_destination.reason": "why it could not be reached",
    "held_destination.detail": "what was found",
    "held_destination.tries": "how often it was tried without success",
    "held_destination.since": "when it first could not be reached",
    "held_destination.next_try_at": "when it is tried again",
    "event.id": "rising",
    "event.at": "when",
    "event.kind": "what was done: `batch_resolved`, `rolled_back`, `probe` and so on",
    "event.batch_id": "to which batch",
    "event.endpoint": "to which endpoint",
    "event.actor": "user and host",
    "event.detail": "the rest, as JSON",
}
"""By table and column; the times of a batch, ``…_at``, are explained by its states."""
