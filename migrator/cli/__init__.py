"""The command line: one file per group of verbs; data on stdout, everything else on stderr.

A verb parses options, calls its module in ``app``, and prints the result; it decides nothing. Start
with ``root``: the verbs, the global options and the exit codes. ``lazy`` imports a verb when it is
called, ``session`` finds its settings, ``output`` writes.
"""

from migrator.cli.root import main

__all__ = ["main"]
