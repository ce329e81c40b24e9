"""The status page: what a browser sees of a running daemon, and what it may do to it.

``routes`` answers, ``session`` knows who is logged in, ``state`` and ``views`` turn a look at the
daemon into what the templates show, ``words`` has what codes mean. The server makes every picture;
without script the page works as well. Source: docs/status-page.md.
"""

from migrator.web.page.routes import StatusPage

__all__ = ["StatusPage"]
