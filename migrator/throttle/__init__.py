"""Why nothing is claimed now: signals are polled, reasons come and go, each claim asks.

Start with ``reasons``: ``Signal`` has every code with its words, ``Throttle`` the reasons of a
process. ``guard`` is asked before each claim. ``signals`` and ``clock`` say who has to wait,
``polling`` asks them at intervals. Below all that claims: it knows no settings and no lane.
"""
