"""What a migration would do, counted before anything is touched: ``migrator preview``.

``count`` reads the stores, endpoint by endpoint, and ``report`` is the result as values.
"""
