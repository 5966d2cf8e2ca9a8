"""The migrations of the schema, one file each; a released migration never changes."""
