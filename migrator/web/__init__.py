"""What people and programs see of a running daemon: control, health, metrics, the status page.

It serves; it never touches a store or the broker. All it knows comes from a ``Panel``, all it
wants is filed there.
"""
