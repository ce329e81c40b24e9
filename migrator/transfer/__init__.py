"""Move what waits in the delays: `delays migrate` to another generation, `delays transfer` away.

``rules`` tells when a found message is due and whether it may be touched, ``move`` opens both
sides and goes through the levels, ``broker`` takes from one and publishes to the other, ``copies``
keeps what is published byte for byte. Start with ``move``. Source: docs/delays.md; reference
``native-delays.md`` section 8.
"""
