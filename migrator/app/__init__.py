"""The composition root: settings go in, assembled parts come out.

It picks the concrete classes; capabilities get plain values, never settings. Start with ``app``:
it has what every verb may need. ``commands`` builds recall, rollback and verify, ``stores`` opens
each kind of legacy store. What only a daemon needs, ``service`` makes of these parts.
"""

from migrator.app.app import App

__all__ = ["App"]
