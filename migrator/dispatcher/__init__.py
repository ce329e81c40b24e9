"""Being the timeout manager of an endpoint: take in, wait, send when due.

``session`` is the one loop over one link, ``parts`` what outlives it. ``incoming`` takes messages
in, by ``intake`` (store them) or ``forward`` (into the native delays); ``due_rows`` claims and
settles, by ``polling``; ``sender`` publishes what the ``outbox`` holds when it is due. ``trouble``
says what becomes of a message that fails, ``held`` which destinations are not tried now,
``blame`` which letter ended a channel, ``setback`` when failed work is tried again.
Source: design section 10; docs/adr/0006-dispatcher-claims.md.
"""
