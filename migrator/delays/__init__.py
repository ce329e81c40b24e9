"""The native delay queues: 28 levels of queues, each with a TTL, chained by dead-lettering.

``routing`` is pure: names, routing keys, and from a due time to whole seconds. ``topology``
declares and looks at the queues, ``destinations`` at the ways out. ``scan`` goes through one
level, ``walk`` through all of them, ``access`` connects to them for that, and ``probe`` sends a
message through each. Begin with ``routing``. Source: reference ``native-delays.md``.
"""
