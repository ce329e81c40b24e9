"""The web side of a running daemon: control API, health, metrics, the status page.

It serves what a ``StatusService`` knows and passes commands on to it; it never touches a store or
the broker. Start with ``app`` (the paths) and ``auth`` (who may do what); ``server`` runs it on the
sockets of ``listener``; ``client`` is used by the command line. ``status_page`` has the page's
paths and templates, ``views`` what they show; the page works without script: the server draws every
picture. Source: docs/control.md, docs/status-page.md.
"""
