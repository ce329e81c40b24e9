"""Rows that cannot be handed over, each kept with a reason: list, show, retry, export, discard."""
