"""The process that runs for months: threads, signals, leases and the schedule.

It decides *when* and *who*; what is done with a batch is the engine's business.
``launch`` puts together what ``service`` starts and ends; ``worker`` is what its threads have in
common, ``lanes`` runs one lane per thread, ``dispatchers`` one endpoint's dispatcher; ``leases``
keeps their leases alive, ``owner`` knows who this process is. ``schedule`` lists what ``jobs`` runs
at intervals, such as the ``canary``, by an ``errand`` where it takes long; ``supervision`` says how
the workers are to the service manager, by ``notify``, and ``occasions`` tells ``hooks``, each of
which is a ``program`` of the operator's.
"""
