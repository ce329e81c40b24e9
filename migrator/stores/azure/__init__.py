"""Azure Storage Persistence: a timeout is up to three table entities and a blob.

``store`` implements ``stores.documents.ports`` by ``listing``, ``reading`` and ``changes``;
``entities`` and ``partitions`` are pure; ``account`` alone talks to Azure's client libraries.
Source: reference ``legacy-stores.md`` 4, 5.5 and 5.6.
"""
