"""Move what waits in the delays: `delays migrate` to another generation, `delays transfer` away.

Start with ``move``: it opens both sides and goes through the levels. ``rules`` decides when a
message is due and whether it may be moved, ``broker`` takes from one side and publishes to the
other, ``copies`` keeps what is published byte for byte. It uses no store and no ledger.
Source: docs/delays.md; reference ``native-delays.md`` section 8.
"""
