"""RavenDB over HTTP: the documents that NServiceBus.RavenDB keeps timeouts in.

``families`` are the two forms of requests and answers (3.x, 4 and later) as plain values,
``http`` sends them, ``documents`` reads and restores what is in a document, ``receipts`` takes
and puts back with evidence, ``listing`` finds what is due next without the server's index, and
``store`` implements ``DocumentStore`` with all of it. Facts: reference
``legacy-stores.md`` sections 3, 5.4, 5.6. What was run and what was not: docs/how-to/ravendb.md.
"""
