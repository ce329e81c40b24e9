"""What a store promises, which tests show it, and on which stores they run: as a table.

The page ``docs/reference/stores.md`` is written from what pytest collects, so a rule that no
store is asked, or one store is not, cannot be claimed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Shown(StrEnum):
    """How a rule is shown for a store."""

    ALWAYS = "yes"
    WITH_FULL = "full"
    REFUSED = "refused"
    ELSEWHERE = "one step"
    NOT = "NOT SHOWN"


@dataclass(frozen=True, slots=True)
class Rule:
    """One promise."""

    text: str
    tests: Sequence[str]
    """Functions; each has to run on a store."""
    refusals: Sequence[str] = ()
    """Functions that show of document stores that they refuse it."""
    has_two_steps: bool = False
    """Only document stores have something to show: a table's claim is one transaction."""


RULES: Final = (
    Rule(
        "Endpoints are found by their timeouts; an unknown one is told which there are",
        ["test_discovery_tells_whose_timeouts_there_are"],
    ),
    Rule(
        "Claims go from the soonest due to the latest, batch after batch",
        [
            "test_claim_takes_the_soonest_due_first",
            "test_many_rows_due_at_the_same_moment_are_all_claimed_once",
        ],
    ),
    Rule(
        "What is claimed is in the ledger and nowhere else",
        [
            "test_a_claimed_row_is_in_the_ledger_and_no_longer_in_the_store",
            "test_rows_the_ledger_has_stay_in_the_store",
            "test_a_timeout_in_both_places_is_found",
        ],
    ),
    Rule(
        "Claimers in two processes never share a timeout, and together take all",
        ["test_two_claimers_share_no_row_and_together_take_all"],
    ),
    Rule(
        "Beside a live timeout manager (peek, delete by id, delete by saga) each is sent once",
        [
            "test_each_timeout_is_sent_by_its_manager_or_claimed",
            "test_a_claimed_timeout_is_gone_for_its_manager",
            "test_what_its_manager_removed_is_not_claimed",
            "test_a_manager_sends_what_was_released",
        ],
    ),
    Rule(
        "Other endpoints are left alone",
        ["test_others_timeouts_are_left_alone"],
    ),
    Rule(
        "Release puts back byte for byte: Unicode, every byte, NULL, empty",
        ["test_release_puts_rows_back_byte_for_byte"],
    ),
    Rule(
        "Quarantined timeouts go back byte for byte",
        ["test_quarantined_rows_go_back_byte_for_byte"],
    ),
    Rule(
        "Parked timeouts go on, or back byte for byte",
        ["test_parked_rows_go_on_or_back_byte_for_byte"],
    ),
    Rule(
        "What cannot go back stays in quarantine with the reason, and the rest goes",
        ["test_an_id_that_is_stored_again_keeps_no_other_row"],
    ),
    Rule(
        "Recall puts back byte for byte, and leaves an id that is stored again to a person",
        [
            "test_a_row_comes_back_as_it_was",
            "test_an_id_that_is_in_its_table_again_is_left_to_a_person",
        ],
    ),
    Rule(
        "Any name: quotes, spaces, colons, percent signs, letters of any alphabet",
        ["test_names_may_contain_anything"],
    ),
    Rule("More timeouts than a page are all seen, each once", ["test_scan_yields_every_row_once"]),
    Rule(
        "Never early: what is finer than a microsecond is rounded up",
        ["test_it_is_never_due_earlier_than_stored"],
    ),
    Rule(
        "The zone of server, session and process changes nothing",
        ["test_sessions_in_an_odd_zone_change_nothing"],
    ),
    Rule(
        "The first and the last moment of the calendar are times like others",
        ["test_the_ends_of_the_calendar_are_times_like_others"],
    ),
    Rule(
        "A due time that is none is never claimed, and is shown",
        [
            "test_rows_without_a_usable_due_time_stay",
            "test_scan_shows_unusable_due_times_as_none",
        ],
    ),
    Rule(
        "A half-finished run of the vendor's tool is refused",
        ["test_a_half_finished_run_is_refused"],
    ),
    Rule(
        "A trial claim proves the rights and changes nothing",
        ["test_a_trial_claim_changes_nothing"],
    ),
    Rule(
        "Stopped between the two steps of a claim, a release or a recall, it is finished once",
        [
            "test_a_claim_that_ends_anywhere_is_finished",
            "test_a_release_that_ends_anywhere_restores_once",
            "test_a_row_that_goes_back_alone_goes_once",
            "test_a_recall_that_ends_anywhere_restores_once",
            "test_whoever_comes_late_restores_nothing",
        ],
        has_two_steps=True,
    ),
    Rule(
        "Being the timeout manager (dispatch, forward)",
        [
            "test_only_rows_that_are_named_are_claimed",
            "test_a_redelivered_message_is_known_before_it_is_dispatched",
            "test_a_saga_is_cleared_of_all_its_rows",
        ],
        ["test_dispatching_is_refused", "test_what_needs_tables_is_refused"],
    ),
)

COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "SQL: PostgreSQL": ["postgresql-sql"],
    "SQL: MariaDB": ["mariadb-sql"],
    "SQL: SQLite": ["sqlite-sql"],
    "NHibernate": ["postgresql-nhibernate", "mariadb-nhibernate", "sqlite-nhibernate"],
    "Azure (Azurite)": ["azurite"],
    "RavenDB 3.5 (strict server)": ["ravendb-3.5"],
    "RavenDB 6.2": ["ravendb-6.2"],
    "RavenDB 4.1, 5.4, 7.0": ["ravendb-4.1", "ravendb-5.4", "ravendb-7.0"],
}
"""Each column, and the stores that are in it."""
_DOCUMENTS: Final = {
    "azurite": "azure",
    "ravendb-3.5": "ravendb",
    "ravendb-6.2": "ravendb",
    "ravendb-4.1": "ravendb",
}
"""Document stores, the first of each column, and the kind that settings call them."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a test, as pytest collects it."""

    file: str
    """Without its suffix."""
    test: str
    store: str
    """As in ``COLUMNS``, or the kind of store of a refusal."""
    is_slow: bool


def table(runs: Iterable[Run]) -> dict[str, list[Shown]]:
    """Return how each rule is shown, by its text, for each of ``COLUMNS``."""
    always, ever = set[tuple[str, str]](), set[tuple[str, str]]()
    for run in runs:
        ever.add((run.test, run.store))
        if not run.is_slow:
            always.add((run.test, run.store))

    def of(rule: Rule, stores: Sequence[str]) -> Shown:
        kind = _DOCUMENTS.get(stores[0])
        if rule.refusals and kind:
            is_refused = all((test, kind) in always for test in rule.refusals)
            return Shown.REFUSED if is_refused else Shown.NOT
        if rule.has_two_steps and not kind:
            return Shown.ELSEWHERE
        if all(any((test, store) in always for store in stores) for test in rule.tests):
            return Shown.ALWAYS
        is_shown = all((test, store) in ever for store in stores for test in rule.tests)
        return Shown.WITH_FULL if is_shown else Shown.NOT

    return {rule.text: [of(rule, stores) for stores in COLUMNS.values()] for rule in RULES}


def page(shown: Mapping[str, Sequence[Shown]]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| what a store promises | {' | '.join(COLUMNS)} |",
        f"| --- |{' --- |' * len(COLUMNS)}",
        *(f"| {text} | {' | '.join(cells)} |" for text, cells in shown.items()),
    ]
    return "\n".join(lines) + "\n"
