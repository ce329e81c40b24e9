"""Remove the queues and the table a timeout manager left, or one generation of delays.

May change broker, legacy table and audit log; ``rules`` decides what goes, what stays and why.
Start with ``remove`` (an endpoint: look, unbind, wait, look again, delete) or ``levels`` (`delays
delete`). ``broker`` reads and changes the broker, ``queries`` the databases.
"""
