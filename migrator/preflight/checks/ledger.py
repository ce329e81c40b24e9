"""Is there a ledger of the version we need, and was it made in this database?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.errors import DatabaseFailedOver, LedgerCloned, LedgerMissing, NotChecked
from migrator.ledger.report import OpenCommit
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import LedgerFacts

NAME: Final = "ledger"


def check(
    ledger: LedgerFacts,
    *,
    version: DelaysVersion | None = None,
    other_commits: Sequence[OpenCommit] = (),
) -> Iterator[Finding]:
    """Refuse a ledger that is missing, of another version, or copied from another database.

    Also one with *other_commits*, when messages are to enter the delays *version*; None: none are.
    Warn of a database that may forget what it has committed, by itself or by a failover.
    """
    try:
        text = ledger.verify()
    except LedgerMissing as exc:
        yield _refused(str(exc), "migrator db upgrade")
    except LedgerCloned as exc:
        yield _refused(str(exc), "migrator db adopt, when the other database is gone for good")
    except DatabaseFailedOver as exc:
        yield _refused(str(exc), "migrator db adopt --after-failover --dry-run")
    else:
        yield Finding(check=NAME, level=Level.OK, subject="ledger", text=text)
        yield from _forgetful(ledger)
        yield from _replicated(ledger)
    if version is not None and other_commits:
        yield _half_handed_over(version, other_commits)


def _half_handed_over(version: DelaysVersion, commits: Sequence[OpenCommit]) -> Finding:
    batches = ", ".join(str(each.batch) for each in commits)
    delays = commits[0].delays
    return Finding(
        check=NAME,
        level=Level.REFUSED,
        subject=f"batches in committing: {batches}",
        text=f"they were on their way into delays {delays} when their process ended, and a run "
        f"into delays {version} cannot find out whether they went",
        remedy=f"settle them by `migrator run --delays {delays} --once`, then start with {version}",
    )


def _forgetful(ledger: LedgerFacts) -> Iterator[Finding]:
    how = ledger.forgets()
    if how is not None:
        yield Finding(
            check=NAME,
            level=Level.WARNING,
            subject="ledger",
            text=f"{how}: when its machine fails, the database forgets what it committed last; "
            "what was handed over in it is then in the table again as well",
            remedy=f"SET GLOBAL {how.partition(' ')[0]} = 1, and in the server's settings",
        )


def _replicated(ledger: LedgerFacts) -> Iterator[Finding]:
    behind = ledger.standbys_behind()
    if isinstance(behind, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="standbys", text=behind.reason)
    elif behind:
        yield Finding(
            check=NAME,
            level=Level.WARNING,
            subject="standbys",
            text=f"{', '.join(behind)} asynchronous: a failover forgets what was committed last, "
            "and what was handed over in it is then in the table again as well",
            remedy="name one of them in synchronous_standby_names, or see docs/what-if.md: the "
            "database failed over to a replica",
        )


def _refused(text: str, remedy: str) -> Finding:
    return Finding(check=NAME, level=Level.REFUSED, subject="ledger", text=text, remedy=remedy)
