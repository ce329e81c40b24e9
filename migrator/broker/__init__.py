"""RabbitMQ: implements the ports ``Link``, ``Staging`` and ``Destinations`` with pika.

``addresses`` and ``connection`` say where the broker is and how it answers no; ``wire`` drives
asynchronous connections on the lane's own thread; ``frames``, ``publisher``, ``staging`` and
``link`` are the fast path of a lane; ``admin`` declares, binds and looks things up over a short
connection for ``topology`` and ``destinations``; ``management`` reads the optional HTTP API.
pika's types never leave this package.
"""
