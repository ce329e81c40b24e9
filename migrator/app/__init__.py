"""The composition root: settings go in, assembled parts come out.

It picks the concrete classes; capabilities get plain values, never settings. Each verb has a module
that opens what it needs: ``ledger``, ``broker`` and ``stores`` open one server each, ``servers``
all three. ``run`` makes a daemon of them.
"""
