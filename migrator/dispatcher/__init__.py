"""The timeout manager's work for an endpoint: receive, store or forward, send when due.

Start with ``loop``, one turn over one link. Sources: design section 10, docs/adr/0006.
"""
