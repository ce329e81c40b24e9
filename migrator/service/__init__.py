"""The process that runs for months: workers, leases, schedule, throttle, control, hooks, systemd.

It decides *when* and *who*; what is done with a batch is the capabilities' business. It may use
everything but ``cli``. Start reading at ``launch``, which puts together what ``service`` runs;
``worker`` is what its threads have in common, ``lanes`` and ``dispatchers`` are the two kinds.
"""
