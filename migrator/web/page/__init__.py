"""The status page: what a browser sees of a running daemon, and what it may do to it.

``routes`` answers, ``entrance`` lets people in and ``session`` knows them, ``acts`` does what they
want done, ``tuning`` what they want set; ``state`` and ``views`` turn a look at the daemon into
what the templates show, ``words`` has what codes mean, ``exchange`` is what all of them share of
HTTP. The server makes every picture; without script the page works as well.
Source: docs/status-page.md.
"""

from migrator.web.page.routes import StatusPage

__all__ = ["StatusPage"]
