"""Azure Storage Persistence: a timeout is up to three table entities and a blob.

Start with ``store``, which implements ``stores.documents.ports`` with ``listing``, ``reading`` and
``changes``. ``entities`` and ``partitions`` are pure; only ``account`` uses Azure's client
libraries. Source: reference ``legacy-stores.md`` 4, 5.5 and 5.6.
"""
