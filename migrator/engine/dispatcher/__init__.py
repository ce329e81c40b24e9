"""Being the timeout manager of an endpoint: take in, wait, send when due.

``session`` is the one loop; ``intake`` and ``forward`` are the two things that can be done with a
message of ``<queue>.Timeouts``, ``polling`` claims stored rows that get due, ``outbox`` knows what
waits for its time, ``trouble`` what becomes of a message that fails, ``held`` which destinations
are not tried now. Source: design section 10; docs/adr/0006-dispatcher-claims.md.
"""
