"""What the engine needs from the outside, as narrow Protocols; adapters implement them.

``Store`` and ``Claims`` are the legacy side, ``Leases``, ``Batches`` and ``Runs`` the ledger,
``Link``, ``Staging`` and ``Destinations`` the broker, ``SatelliteLink``, ``Routes``, ``Intake``
and ``Dispatching`` the legacy dispatcher; one module each. Every method's docstring
is its contract:
what is true when it returns, and what is true when it raises.

All datetimes are aware and in UTC. Adapters translate their driver's errors into
``migrator.errors``; a ``…Unavailable`` always means that nothing half-done was left behind in
that adapter, or that the docstring says what was.
"""
