"""Being the timeout manager of an endpoint: receive, store or forward, send when due.

Start with ``loop``: one turn of the loop over one link. ``receive`` and ``forward`` handle what
comes in, ``due`` claims and settles stored rows, ``send`` publishes what the ``outbox`` holds
when it is due, ``failures`` says what becomes of what fails. May use the ledger, SQL stores and
the broker. Source: design section 10; docs/adr/0006-dispatcher-claims.md.
"""
