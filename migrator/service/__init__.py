"""The process that runs for months: workers, leases, schedule, throttle, control, hooks, systemd.

It decides *when* and *who*; what is done with a batch is up to the capabilities. It may use
everything but ``cli``. Start with ``launch``, which assembles the parts and waits for their end;
``worker`` is the base of both kinds of thread, ``lanes`` and ``dispatchers``.
"""
