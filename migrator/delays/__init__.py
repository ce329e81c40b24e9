"""The native delay queues: 28 levels of queues, each with a TTL, chained by dead-lettering.

``routing`` and ``due`` are pure: names, routing keys, and from a due time to whole seconds.
``topology`` declares and looks at the queues, ``destinations`` and ``bindings`` at the ways out,
``scan`` goes through one level, ``probe`` sends a message through all of them. Begin with
``routing``. Source: reference ``native-delays.md``.
"""
