"""Move what waits in the delays: `delays migrate` to another generation, `delays transfer` away.

Start with ``move``: it opens both sides, goes through the levels and reports. ``rules`` decides
when a message is due, ``broker`` takes from one side and publishes copies to the other. It uses no
store and no ledger.
Source: docs/delays.md; reference ``native-delays.md`` section 8.
"""
