"""Remove what the timeout manager left (`decommission`), or a generation of delays.

May touch broker, legacy table and audit log; ``rules`` decides what goes, what stays and why not.
Start with ``remove`` (an endpoint: look, cut, wait, look again, delete) or ``levels`` (`delays
delete`); both ask and change the broker through ``broker``, the databases through ``queries``.
"""
