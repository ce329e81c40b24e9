"""What makes hand-over wait: one file per signal, each looked at by a thread of its own.

``base`` has what they share: when a hold begins and ends, and what it means that nobody knows.
``build`` makes those that the settings want, ``all_of`` runs them. Source: docs/throttling.md.
"""
