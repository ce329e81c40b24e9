"""Whether store, ledger and broker agree: ``migrator verify``.

It changes nothing. A daemon may work meanwhile, so a difference between two answers is checked
again before it is reported. Start with ``verify.verify``. ``levels`` scans the levels, ``queries``
and ``stores`` ask ledger and store, ``rules`` decides, ``report`` is the result,
``document`` its public form, ``evidence`` the file for an auditor. Source: docs/verify.md.
"""
