"""Whether store, ledger and broker agree: ``migrator verify``.

It looks, and changes nothing; a daemon may work meanwhile, so whatever looks wrong by comparing
two answers is asked again. ``verify`` does one thing after the other, ``levels`` looks through the
levels, ``queries`` and ``stores`` ask ledger and store; ``rules`` decide, ``report`` is what came
of it, ``evidence`` the file for an auditor. Begin with ``verify.Verify``. Source: docs/verify.md.
"""
