"""How alembic reaches the ledger: the connection and names are passed in, never configured here.

Run by ``migrator.ledger.migrations`` only; see there.
"""

from alembic import context

attributes = context.config.attributes
names = attributes["names"]
options = {
    "target_metadata": attributes["metadata"],
    "version_table": names.table("alembic_version"),
    "version_table_schema": names.schema,
    "include_schemas": names.schema is not None,
}

if context.is_offline_mode():
    context.configure(dialect_name=attributes["dialect"], literal_binds=True, **options)
else:
    context.configure(connection=attributes["connection"], **options)
with context.begin_transaction():
    context.run_migrations()
