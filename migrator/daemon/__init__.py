"""The process that runs for months: threads, signals, leases and the schedule.

It decides *when* and *who*; what is done with a batch is the engine's business.
``service`` starts and ends everything, ``lanes`` runs one lane per thread, ``leases`` keeps
their leases alive, ``owner`` knows who this process is.
"""
