"""Create the ledger: runs, batches, timeouts, leases, waiting destinations, events, and views."""

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from migrator.database.types import BYTES, LINE, LONG_TEXT, KeyText, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_OPEN = "state IS NULL OR state IN ('quarantined', 'dispatched')"
# as no query of some batch or state would say it: planners shall have this index for ids alone
_IS_OPEN = sa.text("coalesce(state, '') IN ('', 'quarantined', 'dispatched')")
_STORE_ID_CHARS = 500
_OPEN_KEY = ["store_id", "source"]
_OPEN_KEYS = {
    "mysql": ["open_store_id", "source"],
    "mssql": ["open_store_id", "source"],
    "oracle": ["open_store_id", "open_source"],
}
_HAS_STATE = sa.text("state IS NOT NULL")
_CREATE_VIEW = {
    "mysql": "CREATE OR REPLACE SQL SECURITY INVOKER VIEW",
    "oracle": "CREATE OR REPLACE VIEW",
}
_WHOLE = {"mysql": "signed", "oracle": "number(19)"}
_BYTES_OF_BODY = {"mssql": "datalength(t.body)", "oracle": "dbms_lob.getlength(t.body)"}
_BATCH_TIMES = (
    "claiming_at",
    "claimed_at",
    "parked_at",
    "staging_at",
    "committing_at",
    "publishing_at",
    "handed_over_at",
    "dispatched_at",
    "doubtful_at",
    "releasing_at",
    "released_at",
)


def upgrade() -> None:
    """Create all tables and views."""
    _create_ledger_and_run()
    _create_batch()
    _create_timeout()
    _create_lease()
    _create_waiting_destination()
    _create_event()
    _create_views()


def downgrade() -> None:
    """Refuse: the ledger is the only memory of what was handed over."""
    raise NotImplementedError("the ledger is never downgraded; restore a backup instead")


def _id() -> sa.Column[Any]:
    counting = [sa.Identity()] if _dialect() == "oracle" else []
    return sa.Column("id", _ID, *counting, primary_key=True)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, LONG_TEXT, nullable=nullable)


def _key(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, KeyText(), nullable=nullable)


def _time(name: str, *, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime(), nullable=nullable)


def _names() -> Any:
    return context.config.attributes["names"]


def _create(noun: str, *columns: Any) -> None:
    op.create_table(_names().table(noun), *columns, schema=_names().schema)


def _index(noun: str, name: str, columns: list[str], **options: Any) -> None:
    names = _names()
    op.create_index(names.table(name), names.table(noun), columns, schema=names.schema, **options)


def _create_ledger_and_run() -> None:
    _create(
        "ledger",
        sa.Column("id", sa.String(40), primary_key=True),
        _key("identity"),
        _time("created_at", nullable=False),
    )
    _create(
        "run",
        _id(),
        _key("endpoint"),
        _key("source"),
        _text("options"),
        _key("tool_version"),
        _key("status"),
        _time("begun_at", nullable=False),
        _time("ended_at"),
    )


def _create_batch() -> None:
    names = _names()
    run = ".".join(filter(None, (names.schema, names.table("run"), "id")))
    _create(
        "batch",
        _id(),
        sa.Column("run_id", _ID, sa.ForeignKey(run), nullable=False),
        _key("endpoint"),
        _key("source"),
        sa.Column("lane", sa.Integer, nullable=False),
        _key("mode"),
        _key("state"),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("purged", sa.Integer, nullable=False, server_default="0"),
        sa.Column("body_bytes", sa.BigInteger, nullable=False),
        _time("first_due"),
        _time("last_due"),
        _key("owner", nullable=True),
        sa.Column("lease_token", sa.BigInteger, nullable=False),
        *(_time(name) for name in _BATCH_TIMES),
        _key("ledger_id", nullable=True),
        sa.Column("destination", KeyText(_STORE_ID_CHARS), nullable=True),
    )
    _index("batch", "batch_lane_state", ["lane", "state"])
    _index("batch", "batch_run", ["run_id"])
    has_one = sa.text("destination IS NOT NULL")
    where = {"postgresql_where": has_one, "sqlite_where": has_one, "mssql_where": has_one}
    _index("batch", "batch_destination", ["destination"], **where)


def _create_timeout() -> None:
    _create(
        "timeout",
        _id(),
        _key("source"),
        _key("endpoint"),
        sa.Column("store_id", KeyText(_STORE_ID_CHARS), nullable=False),
        sa.Column("batch_id", _ID, nullable=False),
        sa.Column("row_index", sa.Integer, nullable=False),
        sa.Column("destination", LINE, nullable=True),
        sa.Column("saga_id", LINE, nullable=True),
        _time("due", nullable=False),
        sa.Column("body", BYTES, nullable=True),
        _text("headers", nullable=True),
        sa.Column("persistence_version", LINE, nullable=True),
        _key("content_hash"),
        _key("state", nullable=True),
        _key("reason", nullable=True),
        _text("reason_detail", nullable=True),
        _text("store_version", nullable=True),
        _text("store_extra", nullable=True),
        sa.Column("going_back", LINE, nullable=True),
        *_open_columns(),
    )
    if _dialect() == "mssql":
        # a purge changes thousands of rows at a time, and must not keep claims from the table
        op.execute(_with_names("ALTER TABLE {timeout} SET (LOCK_ESCALATION = DISABLE)"))
    where = {"postgresql_where": _IS_OPEN, "sqlite_where": _IS_OPEN}
    _index("timeout", "timeout_open", _OPEN_KEYS.get(_dialect(), _OPEN_KEY), unique=True, **where)
    _index("timeout", "timeout_batch", ["batch_id", "row_index"])
    where = {"postgresql_where": _HAS_STATE, "sqlite_where": _HAS_STATE, "mssql_where": _HAS_STATE}
    _index("timeout", "timeout_state", ["state", "id"], **where)


def _open_columns() -> list[sa.Column[Any]]:
    """Return what stands in for an index over open rows.

    A unique index leaves NULL out on MySQL, and keys that are NULL all through on Oracle; on SQL
    Server, a row that is not open counts by its own id.
    """
    dialect = _dialect()
    if dialect not in _OPEN_KEYS:
        return []
    others = "else N'#' + cast(id as nvarchar(20)) " if dialect == "mssql" else ""
    of_id = f"case when {_OPEN} then store_id {others}end"
    computed = sa.Computed(of_id, persisted=dialect != "oracle")
    found = [sa.Column("open_store_id", KeyText(_STORE_ID_CHARS), computed)]
    if dialect == "oracle":
        computed = sa.Computed(f"case when {_OPEN} then source end", persisted=False)
        found.append(sa.Column("open_source", KeyText(), computed))
    return found


def _dialect() -> str:
    return op.get_context().dialect.name


def _create_lease() -> None:
    _create(
        "lease",
        sa.Column("name", sa.String(100), primary_key=True),
        _key("owner", nullable=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        _time("until", nullable=False),
        _text("doing", nullable=True),
        _time("renewed_at", nullable=False),
        _key("serves", nullable=True),
        _key("position", nullable=True),
    )
    # NULL is a value on SQL Server
    is_serving = sa.text("serves IS NOT NULL")
    _index("lease", "lease_serves", ["serves"], unique=True, mssql_where=is_serving)


def _create_waiting_destination() -> None:
    _create(
        "held_destination",
        _key("source"),
        sa.Column("destination", KeyText(_STORE_ID_CHARS), nullable=False),
        _key("endpoint"),
        _key("reason"),
        _text("detail"),
        sa.Column("tries", sa.Integer, nullable=False),
        _time("since", nullable=False),
        _time("next_try_at", nullable=False),
        sa.PrimaryKeyConstraint("source", "destination", mssql_clustered=False),
    )


def _create_event() -> None:
    _create(
        "event",
        _id(),
        _time("at", nullable=False),
        _key("kind"),
        sa.Column("batch_id", _ID, nullable=True),
        _key("endpoint", nullable=True),
        _key("actor"),
        _text("detail"),
    )
    _index("event", "event_batch", ["batch_id"])


def _create_views() -> None:
    # there, whoever asks a view needs rights on the tables, and no user may go who has made it
    create = _CREATE_VIEW.get(_dialect(), "CREATE VIEW")
    for view, query in (("timeout_status", _TIMEOUT_STATUS), ("progress", _PROGRESS)):
        op.execute(_with_names(f"{create} {{{view}}} AS {query}"))


def _with_names(statement: str) -> str:
    names = _names()
    preparer = op.get_context().dialect.identifier_preparer
    quote = preparer.quote
    nouns = ("batch", "timeout", "timeout_status", "progress")
    schema = f"{quote(names.schema)}." if names.schema else ""
    found = {noun: schema + quote(names.table(noun)) for noun in nouns}
    return statement.format(
        **found,
        rows=preparer.quote_identifier("rows"),
        whole=_WHOLE.get(_dialect(), "bigint"),
        body_bytes=_BYTES_OF_BODY.get(_dialect(), "length(t.body)"),
        **{name: quote(name) for name in ("mode", "size")},  # words of Oracle's
    )


_TIMEOUT_STATUS = """
SELECT t.id, t.source, t.endpoint, t.store_id, coalesce(t.state, b.state) AS state, t.destination,
       t.saga_id, t.due, coalesce({body_bytes}, 0) AS body_bytes, t.content_hash, t.reason,
       t.reason_detail, b.id AS batch_id, t.row_index, b.run_id, b.lane, b.{mode}, b.attempt,
       b.state AS batch_state, b.claimed_at, b.handed_over_at
FROM {timeout} t JOIN {batch} b ON b.id = t.batch_id
"""
_PROGRESS = """
SELECT endpoint, state, CAST(sum(n) AS {whole}) AS {rows}
FROM (
    SELECT endpoint, state, sum({size}) AS n FROM {batch} GROUP BY endpoint, state
    UNION ALL
    SELECT b.endpoint, b.state, -count(*) FROM {timeout} t JOIN {batch} b ON b.id = t.batch_id
    WHERE t.state IS NOT NULL AND t.state <> b.state GROUP BY b.endpoint, b.state
    UNION ALL
    SELECT b.endpoint, t.state, count(*) FROM {timeout} t JOIN {batch} b ON b.id = t.batch_id
    WHERE t.state IS NOT NULL AND t.state <> b.state GROUP BY b.endpoint, t.state
) counted
GROUP BY endpoint, state
HAVING sum(n) <> 0
"""
