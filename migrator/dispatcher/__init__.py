"""The timeout manager's work for an endpoint: receive, store or forward, send when due.

Start with ``loop``: one turn of the loop over one link. ``receive`` handles incoming messages,
``due`` claims and settles stored rows, ``send`` publishes what is due from the
``outbox``, ``failures`` decides about what fails. May use the ledger, SQL stores and the broker.
Source: design section 10; docs/adr/0006-dispatcher-claims.md.
"""
