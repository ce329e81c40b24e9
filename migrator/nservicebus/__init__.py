"""What NServiceBus endpoints write and read: pure, no I/O, no clock, no logging.

``timeouts`` says what a delayed message is, ``headers`` and ``wiretime`` how its headers are read,
``conversion`` what becomes of a stored timeout. ``satellites``, ``incoming`` and
``recoverability`` are the timeout manager's side: what a message on its queues asks for, and the
copies of those that failed.
"""
