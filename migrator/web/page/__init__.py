"""The status page: what a browser sees of a running daemon, and what it may do to it.

``routes`` answers and does what people want done, ``login`` lets them in; ``views`` turns a look at
the daemon into what the templates show, ``pages`` is what all of them share of HTTP. The server
makes every picture; without script the page works as well. Source: docs/status-page.md.
"""

from migrator.web.page.routes import StatusPage

__all__ = ["StatusPage"]
