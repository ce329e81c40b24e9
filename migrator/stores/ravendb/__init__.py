"""RavenDB over HTTP: the documents that NServiceBus.RavenDB keeps timeouts in.

Start with ``store``, which implements ``DocumentStore``. ``families`` are the two forms of
requests and answers (3.x, 4 and later) as plain values, ``http`` sends them, ``documents`` parses
and restores documents, ``receipts`` takes and puts back with proof, ``listing`` finds what is due
next without the server's index. Source: reference ``legacy-stores.md`` sections 3, 5.4, 5.6.
"""
