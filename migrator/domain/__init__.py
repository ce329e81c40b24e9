"""The rules, as plain values and functions: no I/O, no clock, no logging.

``timeouts`` says what a message is, ``delays`` and ``routing`` how long and by which key it
waits, ``conversion`` what becomes of a stored timeout, ``states`` what may happen to a batch,
``report`` what is told to people. ``incoming`` and ``satellites`` say what a message on a timeout
manager's queue asks for, ``delivery`` what leaves when it is due, ``recoverability`` what becomes
of what failed. Everything else in migrator moves these values about.
"""
