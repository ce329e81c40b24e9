"""Entries of the audit trail as sentences: who did what, and why.

Pure. A ledger may have entries of other versions: what is missing, or of another kind than it
should be, is left out of a sentence, and never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from migrator.ledger.report import AuditEvent
from migrator.text import counted, grouped, listed, span_words
from migrator.throttle.reasons import Signal

_LONGEST_CHARS: Final = 300
"""Of an event's text; the ledger has all of it."""
_FEW: Final = 5
"""Of names that are listed."""
_COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "pause": ("paused", "pause", " {whom}"),
    "resume": ("resumed", "resume", " {whom}"),
    "set": ("set", "set", " {setting} to {value}"),
    "retry": ("had rows in quarantine tried again", "have rows in quarantine tried again", ""),
    "discard": ("discarded rows in quarantine", "discard rows in quarantine", ""),
    "drain": ("asked the daemon to finish and end", "have the daemon finish and end", ""),
    "stop": ("asked the daemon to end at once", "have the daemon end at once", ""),
}
"""Of a command what was done, what was to be done, and with what."""
_STAYED: Final[Mapping[str, str]] = {
    "too_near": "due too soon",
    "unsettled": "of unsettled batches",
    "taken": "with a row in the table again",
    "refused": "whose table does not take the row back",
    "store_gone": "of a store that is gone",
    "different": "unlike its row",
}
"""Why migrated messages stayed in the levels, by the outcome of a recall."""


class _Facts:
    """What the ledger has of one event, as far as it is what it should be."""

    def __init__(self, event: AuditEvent) -> None:
        self._detail = event.detail
        self.actor = event.actor or "an unknown user"
        self.batch = "" if event.batch is None else f" {event.batch}"
        self.endpoint = str(event.endpoint or "") or self.text("endpoint")

    def text(self, key: str) -> str:
        """Return a text, or a number as text; empty: there is none."""
        value = self._detail.get(key)
        return str(value) if isinstance(value, str | int | float) else ""

    def number(self, key: str) -> int:
        """Return a count; 0: there is none."""
        return int(self.measured(key) or 0)

    def measured(self, key: str) -> float | None:
        """Return a number; None: there is none."""
        value = self._detail.get(key)
        return None if isinstance(value, bool) or not isinstance(value, int | float) else value

    def listed(self, key: str) -> Sequence[str]:
        """Return the texts of a list."""
        value = self._detail.get(key)
        return [str(each) for each in value] if isinstance(value, list | tuple) else []

    def counts(self, key: str) -> Mapping[str, int]:
        """Return counts by name, without those of which there are none."""
        value = self._detail.get(key)
        found = value.items() if isinstance(value, Mapping) else ()
        return {str(name): count for name, count in found if isinstance(count, int) and count}

    def is_yes(self, key: str, *, by_itself: bool) -> bool:
        """Return a truth; *by_itself*: that of an event that does not have it."""
        value = self._detail.get(key)
        return value if isinstance(value, bool) else by_itself

    def moment(self, key: str) -> str:
        """Return a time in UTC; empty: there is none."""
        try:
            at = datetime.fromisoformat(self.text(key))
        except ValueError:
            return ""
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

    @property
    def of(self) -> str:
        """Whose rows are meant, after what is said of them; empty: anybody's."""
        return f" of {self.endpoint}" if self.endpoint else ""

    @property
    def rows(self) -> str:
        """How many rows."""
        return counted(self.number("rows"), "row")

    @property
    def signal(self) -> str:
        """Why nothing is claimed, with what was seen and what would be fine."""
        code = self.text("signal")
        words = next((each.words for each in Signal if each == code), code)
        observed, limit = self.text("observed"), self.text("limit")
        return ": ".join(each for each in (words, observed) if each) + _in_brackets(limit)


def event_text(event: AuditEvent) -> str:
    """Return *event* of the audit trail as a sentence: who did what, and why."""
    facts = _Facts(event)
    tell = SENTENCES.get(event.kind)
    text = tell(facts) if tell else _unknown(event, facts)
    return text if len(text) <= _LONGEST_CHARS else f"{text[:_LONGEST_CHARS]}…"


def _unknown(event: AuditEvent, facts: _Facts) -> str:
    """Return a sentence about an event that another version of migrator recorded."""
    batch = f" of batch{facts.batch}" if facts.batch else ""
    said = ", ".join(f"{key} {text}" for key in event.detail if (text := facts.text(key)))
    more = f": {said}" if said else ""
    return f"{facts.actor} recorded “{event.kind.replace('_', ' ')}”{batch}{more}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _sentence(*parts: str) -> str:
    """Return *parts* with semicolons between them, without empty ones."""
    return "; ".join(part for part in parts if part)


# ── what people, and the daemon, do to the work ─────────────────────────────────────────────────


def _command(facts: _Facts) -> str:
    name = facts.text("command")
    done, to_do, what = _COMMANDS.get(name, (f"gave the command {name}", f"have {name} done", ""))
    what = what.format(
        whom=facts.endpoint or "all", setting=facts.text("setting"), value=facts.text("value")
    )
    why = _in_brackets(facts.text("reason"))
    answer = f": {told}" if (told := facts.text("answer")) else ""
    who = facts.text("who") or facts.actor
    if facts.is_yes("is_done", by_itself=True):
        return f"{who} {done}{what}{why}{answer}"
    return f"{who} wanted to {to_do}{what}{why} and was refused{answer}"


def _paused(facts: _Facts) -> str:
    if not facts.is_yes("is_paused", by_itself=True):
        return f"{facts.endpoint or 'Every endpoint'} is no longer paused"
    return f"Claiming{facts.of} is paused until an operator resumes it. {facts.signal}"


def _hold_began(facts: _Facts) -> str:
    return f"Claiming{facts.of} is paused. {facts.signal}"


def _hold_ended(facts: _Facts) -> str:
    held_s = facts.measured("held_s")
    after = "" if held_s is None else f", after {span_words(held_s)}"
    return f"Rows{facts.of} are claimed again{after}. Over: {facts.signal}"


def _critical(facts: _Facts) -> str:
    limit = f"A critical limit was exceeded, and the daemon ({facts.actor}) ends"
    return f"{limit}: {reason}" if (reason := facts.text("reason")) else limit


def _reload(facts: _Facts) -> str:
    read = f"The daemon ({facts.actor}) read its settings again"
    if not facts.is_yes("is_done", by_itself=True):
        return f"{read}, found them wrong and changed nothing: {facts.text('error')}"
    changed, later = facts.listed("changed"), facts.listed("needs_restart")
    if not changed and not later:
        return f"{read}: they are as before"
    new = (
        f"{listed(changed, _FEW)} {'is' if len(changed) == 1 else 'are'} in force"
        if changed
        else ""
    )
    counts = "counts" if len(later) == 1 else "count"
    return f"{read}: " + _sentence(
        new, f"{listed(later, _FEW)} {counts} after a restart only" if later else ""
    )


def _recheck(facts: _Facts) -> str:
    return f"The daemon ({facts.actor}) repeated the checks of the broker: {facts.text('text')}"


def _probe(facts: _Facts) -> str:
    text = facts.text("text") or facts.text("error")
    if facts.text("outcome") == "failed":
        return f"The daemon ({facts.actor}) could not probe the delays: {text}"
    return f"The daemon ({facts.actor}) probed the delays: {text}"


def _capacity(facts: _Facts) -> str:
    said = f"{facts.actor} measured how fast the delay levels let messages go"
    if (cost_s := facts.measured("exchange_cost_s")) is None:
        return said
    version = facts.text("broker_version")
    broker = f", on RabbitMQ {version}" if version else ""
    return f"{said}: each exchange costs a level {cost_s * 1000:.3f} ms{broker}"


# ── what is decided about rows and batches ──────────────────────────────────────────────────────


def _which(facts: _Facts) -> str:
    """Return which rows of the quarantine were meant."""
    timeout = f"timeout {facts.text('id')}" if facts.text("id") else ""
    chosen = ", ".join(each for each in (facts.text("reason"), timeout) if each)
    return f"{facts.rows}{facts.of} in quarantine{_in_brackets(chosen)}"


def _retried(facts: _Facts) -> str:
    return f"{facts.actor} had {_which(facts)} tried again"


def _discarded(facts: _Facts) -> str:
    return f"{facts.actor} discarded {_which(facts)}: they are never sent"


def _resolved(facts: _Facts) -> str:
    rows = f"{facts.rows} of {facts.text('source')}" if facts.number("rows") else ""
    said = f"{facts.actor} resolved batch{facts.batch} as {facts.text('as')}{_in_brackets(rows)}"
    return f"{said}: {evidence}" if (evidence := facts.text("evidence")) else said


def _purged(facts: _Facts) -> str:
    run = f" of run {facts.text('run')}" if facts.text("run") else ""
    before = facts.moment("before")
    what = f", settled and due before {before}" if before else ""
    more = "" if facts.is_yes("is_all", by_itself=True) else "there are more"
    return _sentence(f"{facts.actor} deleted {facts.rows}{run} from the ledger{what}", more)


def _rolled_back(facts: _Facts) -> str:
    run = f" run {facts.text('run')}" if facts.text("run") else ""
    rows, aside = facts.number("rows"), facts.number("quarantined")
    also = f", and {counted(aside, 'row')} from quarantine," if aside else ""
    are = "is" if rows == 1 and not aside else "are"
    return (
        f"{facts.actor} rolled back{run}: {counted(rows, 'row')} not handed over{also} {are} back "
        "in the tables"
    )


def _recalled(facts: _Facts) -> str:
    rows, copies = facts.number("restored"), facts.number("leftover")
    stayed = {words: count for key, words in _STAYED.items() if (count := facts.number(key))}
    left = counted(sum(stayed.values()), "message stays", "messages stay")
    why = ", ".join(f"{grouped(count)} {words}" for words, count in stayed.items())
    return _sentence(
        f"{facts.actor} recalled what was handed over: {counted(rows, 'row is', 'rows are')} back "
        "in the tables",
        f"{counted(copies, 'copy', 'copies')} of rows that were back already are removed"
        if copies
        else "",
        f"{left} at the broker ({why})" if stayed else "",
    )


def _verified(facts: _Facts) -> str:
    wrong, doubtful = facts.counts("discrepancies"), facts.listed("doubtful")
    unseen, checked = len(facts.listed("not_checked")), facts.number("rows_checked")
    if wrong:
        things = counted(sum(wrong.values()), "thing does not", "things do not")
        kinds = ", ".join(
            f"{key.replace('_', ' ')} {grouped(count)}" for key, count in wrong.items()
        )
        said = f"{things} agree ({kinds})"
    elif doubtful:
        batch = counted(len(doubtful), "batch", "batches")
        said = (
            f"everything agrees, but {batch} ({listed(doubtful, _FEW)}) may be at the broker or not"
        )
    else:
        said = "everything agrees"
    return _sentence(
        f"{facts.actor} verified every timeout: {said}",
        f"{counted(checked, 'row was', 'rows were')} compared" if checked else "",
        f"{counted(unseen, 'thing was', 'things were')} not checked" if unseen else "",
    )


# ── what is done to ledgers and endpoints ───────────────────────────────────────────────────────


def _open_batches(facts: _Facts) -> str:
    batches = sum(facts.counts("batches").values())
    return f"{counted(batches, 'batch was', 'batches were')} not settled" if batches else ""


def _adopted(facts: _Facts) -> str:
    return _sentence(
        f"{facts.actor} adopted this copy of the ledger {facts.text('former_ledger')}: it is "
        f"{facts.text('ledger')} from now on",
        _open_batches(facts),
    )


def _moved(facts: _Facts) -> str:
    return _sentence(
        f"{facts.actor} recorded that the ledger {facts.text('former_ledger')} was moved into this "
        "database, and keeps its id",
        _open_batches(facts),
    )


def _failover(facts: _Facts) -> str:
    met = facts.number("handed_over_from_store") + facts.number("handed_over_from_batches")
    unsent, doubtful = facts.number("not_sent"), facts.number("doubtful")
    gone = facts.number("nowhere")
    return _sentence(
        f"{facts.actor} settled what the database lost in a failover: "
        f"{counted(met, 'row is', 'rows are')} in the levels and handed over",
        f"{counted(unsent, 'row is', 'rows are')} still to be sent" if unsent else "",
        f"{counted(doubtful, 'row is', 'rows are')} doubtful (batches "
        f"{listed(facts.listed('doubtful_batches'), _FEW)})"
        if doubtful
        else "",
        f"{counted(gone, 'message comes', 'messages come')} from rows that no longer exist"
        if gone
        else "",
    )


def _unbound(facts: _Facts) -> str:
    left = len(facts.listed("bindings"))
    return f"{counted(left, 'binding')} could not be made again" if left else ""


def _decommission_begun(facts: _Facts) -> str:
    cut = len(facts.listed("bindings"))
    first = f": {counted(cut, 'binding is', 'bindings are')} cut first" if cut else ""
    return f"{facts.actor} began to decommission {facts.endpoint}{first}"


def _decommission_undone(facts: _Facts) -> str:
    gone = facts.listed("deleted")
    return _sentence(
        f"{facts.actor} could not decommission {facts.endpoint}"
        + _in_brackets(listed(facts.listed("refusals"), _FEW)),
        _unbound(facts) or "what was cut is bound again",
        f"deleted before that: {listed(gone, _FEW)}" if gone else "",
    )


def _decommissioned(facts: _Facts) -> str:
    gone = [*facts.listed("deleted")]
    if facts.is_yes("table_dropped", by_itself=False):
        gone.append(f"table {facts.text('source')}")
    what = f": {listed(gone, _FEW)} {'is' if len(gone) == 1 else 'are'} gone" if gone else ""
    return _sentence(f"{facts.actor} decommissioned {facts.endpoint}{what}", _unbound(facts))


SENTENCES: Final[Mapping[str, Callable[[_Facts], str]]] = {
    "command": _command,
    "pause": _paused,
    "hold_began": _hold_began,
    "hold_ended": _hold_ended,
    "critical_load": _critical,
    "reload": _reload,
    "recheck": _recheck,
    "probe": _probe,
    "capacity_measured": _capacity,
    "quarantine_retried": _retried,
    "quarantine_discarded": _discarded,
    "batch_resolved": _resolved,
    "ledger_purged": _purged,
    "rolled_back": _rolled_back,
    "recalled": _recalled,
    "verified": _verified,
    "ledger_adopted": _adopted,
    "ledger_moved": _moved,
    "failover_settled": _failover,
    "decommission_begun": _decommission_begun,
    "decommission_undone": _decommission_undone,
    "decommissioned": _decommissioned,
}
"""By the kind of event; what any part of migrator records is here."""
