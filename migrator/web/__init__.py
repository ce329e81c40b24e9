"""What people and programs see of a running daemon: control, health, metrics, the status page.

It serves what a ``StatusService`` knows and files commands there; it never touches a store or the
broker. Begin with ``app`` (the paths) and ``auth`` (who may ask what); ``server`` runs it on the
sockets of ``listener``; ``client`` is the other end, for the command line.
"""
