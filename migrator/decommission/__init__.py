"""Removing what the timeout manager left, and generations of the native delays.

``rules``, ``plan`` and ``refusals`` are pure: what goes, what stays, and why not. ``work`` removes:
look, cut, wait, look again, delete; ``broker``, ``queries`` and ``store`` are what it asks of
the outside. ``removal`` deletes the levels of one generation. Begin with ``run``.
"""
