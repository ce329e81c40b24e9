"""The work, against ports only: what an operator could ask for, one file each.

``claiming``, ``handover`` and ``lane`` move timeouts; ``preview`` counts what would be moved;
``checks`` says whether it may begin. Nothing here knows a database, a broker client or a thread.
"""
