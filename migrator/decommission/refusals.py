"""Why an endpoint is not decommissioned; all reasons at once, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.decommission.rules import (
    BrokerLook,
    Facts,
    QueueLook,
    Refusal,
    Wishes,
    unexpected_bindings,
)

HOW_TO_DISABLE = (
    "NServiceBus 6: endpointConfiguration.UseTransport<RabbitMQTransport>()"
    ".DelayedDelivery().DisableTimeoutManager(); "
    "NServiceBus 7: remove EnableTimeoutManager(); "
    "NServiceBus 5 cannot do without one: convert the endpoint first"
)
"""How an endpoint's own timeout manager is switched off, by version."""


def refusals(facts: Facts, wishes: Wishes) -> tuple[Refusal, ...]:
    """Return every reason against; empty: nothing speaks against it."""
    found = [*_of_store(facts, wishes), *_of_ledger(facts), *_of_recall(facts, wishes)]
    if facts.broker is None:
        text = "nobody tells what is unacknowledged or held back, nor which bindings there are"
        remedy = "set broker.management_url; deleting without knowing is losing"
        found.append(Refusal(code="management_missing", text=text, remedy=remedy))
    else:
        found += _of_broker(facts, facts.broker)
    return tuple(found)


def _of_store(facts: Facts, wishes: Wishes) -> Iterator[Refusal]:
    if facts.rows:
        yield Refusal(
            code="rows_in_table",
            text=f"{facts.rows} rows are in {facts.source}",
            remedy="migrate them (`migrator run --once --cutoff 0s`), or have them sent first",
        )
    for run in facts.vendor_runs:
        yield Refusal(
            code="vendor_run",
            text=f"rows may be elsewhere: {run}",
            remedy="resume or abort it with the vendor's tool",
        )
    if facts.neighbours.sharing:
        yield Refusal(
            code="shared",
            text="by the settings, its queue or its table is also that of "
            + ", ".join(facts.neighbours.sharing),
            remedy="correct [[endpoints]], or take those out that are gone",
        )
    if wishes.drops_table and facts.is_table_shared:
        yield Refusal(
            code="table_shared",
            text=f"the table of {facts.source} is shared by all endpoints of the store",
            remedy="leave --drop-table out; when the last endpoint is gone, drop it yourself",
        )


def _of_ledger(facts: Facts) -> Iterator[Refusal]:
    ledger = facts.ledger
    if ledger.open_rows:
        yield Refusal(
            code="open_rows",
            text=f"{ledger.open_rows} claimed rows are not settled",
            remedy="`migrator run --once` settles them, `migrator rollback` puts them back",
        )
    if ledger.doubtful:
        yield Refusal(
            code="doubtful_batches",
            text=f"batches {', '.join(map(str, ledger.doubtful))} are doubtful",
            remedy="decide with `migrator batch resolve`",
        )
    if ledger.quarantined:
        yield Refusal(
            code="quarantined_rows",
            text=f"{ledger.quarantined} rows are in quarantine",
            remedy="look with `migrator quarantine list`, then retry or export them; "
            "`migrator rollback` puts them back into the table",
        )
    if ledger.dispatcher is not None:
        yield Refusal(
            code="dispatcher_alive",
            text=f"migrator is its timeout manager now: {ledger.dispatcher}",
            remedy="stop that `migrator run`",
        )
    if ledger.is_running and ledger.lanes:
        yield Refusal(
            code="run_alive",
            text="its last run has not ended, and somebody works: " + ", ".join(ledger.lanes),
            remedy="stop that `migrator run`; if it was killed, `migrator run --once` ends it",
        )


def _of_recall(facts: Facts, wishes: Wishes) -> Iterator[Refusal]:
    if wishes.drops_table and facts.ledger.recallable and not wishes.gives_up_recall:
        yield Refusal(
            code="recallable",
            text=f"{facts.ledger.recallable} handed-over timeouts wait in the levels; without "
            "the table they cannot be recalled any more",
            remedy="wait until they are due, or add --give-up-recall",
        )


def _of_broker(facts: Facts, look: BrokerLook) -> Iterator[Refusal]:
    for queue in look.satellites:
        if queue.consumers:
            yield Refusal(
                code="consumers",
                text=f"{queue.consumers} consume {queue.name}: a timeout manager still runs",
                remedy=f"switch it off. {HOW_TO_DISABLE}",
            )
    for queue in (*look.satellites, *look.retries):
        yield from _of_queue(queue)
    for binding in unexpected_bindings(facts.queue, look):
        yield Refusal(
            code="foreign_binding",
            text=f"exchange {binding.source} leads to {binding.target.kind} "
            f"{binding.target.name} (key {binding.key!r}), which NServiceBus does not do",
            remedy="find out who needs it, and remove it",
        )


def _of_queue(queue: QueueLook) -> Iterator[Refusal]:
    if queue.messages:
        yield Refusal(
            code="messages",
            text=f"{queue.name} is not empty: {queue.ready} ready, {queue.unacked} "
            f"unacknowledged, {queue.held_back} held back",
            remedy="start the timeout manager once more, or `migrator run` in mode dispatch or "
            "forward, until it is; counts lag by some seconds",
        )
    elif not queue.is_told:
        yield Refusal(
            code="counts_unknown",
            text=f"the broker does not tell yet what is in {queue.name}",
            remedy="try again in ten seconds; if it stays so, broker.management_url is of another "
            "broker",
        )
