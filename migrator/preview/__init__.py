"""What a migration would do, counted before it starts: ``migrator preview``.

It only reads the stores. Start with ``count``, endpoint by endpoint; ``forecast`` tells what the
broker will be late with; ``report`` is the result as values.
"""
