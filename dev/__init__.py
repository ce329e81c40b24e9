"""Tools for people who work on migrator; not part of what is shipped."""
