"""The command line: verbs in small files, data on stdout, talk on stderr.

``root`` has the list of verbs and the global options, and ends the process with the right exit
code; ``lazy`` imports a verb when it is called; ``session`` is what every verb gets;
``opening`` is the door to ``wiring``; ``output`` writes tables and JSON.
A verb decides nothing: it loads settings, asks the engine or a port, and shows what came back.
"""

from migrator.cli.root import main

__all__ = ["main"]
