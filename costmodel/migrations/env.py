"""Run by Alembic around its steps: they are taken on the connection, and in the transaction, that it was given."""

from alembic import context

from costmodel.tables import metadata, schema_version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=schema_version.name,
    render_as_batch=True,
)
context.run_migrations()
