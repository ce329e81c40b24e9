"""The status page: what a browser shows of a running daemon, and the actions it offers.

Start with ``routes``: the paths and the actions. ``login`` handles sessions, ``views`` turns a
status into what the templates show, ``pages`` is the HTTP they share. It works without script: the
server draws every picture. Source: docs/status-page.md.
"""

from migrator.web.page.routes import StatusPage

__all__ = ["StatusPage"]
