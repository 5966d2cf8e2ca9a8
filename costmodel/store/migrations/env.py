"""Alembic's environment script: runs migrations on the given connection, in its current transaction."""

from alembic import context

from costmodel.store.tables import metadata, schema_version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=schema_version.name,
    render_as_batch=True,
)
context.run_migrations()
