"""What a migration would do, counted before it starts: ``migrator preview``.

It only reads the stores. Start with ``count``, endpoint by endpoint; ``report`` is the result as
values.
"""
