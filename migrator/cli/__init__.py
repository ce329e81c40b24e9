"""The command line: one file per group of verbs; data on stdout, everything else on stderr.

A verb parses options, calls ``app``, ``service`` or a capability, and prints the result; it decides
nothing. Start with ``root``: the verbs, the global options and the exit codes. ``lazy`` imports a
verb when it is called, ``opening`` builds the ``App``, ``output`` and ``results`` write results.
"""

from migrator.cli.root import main

__all__ = ["main"]
