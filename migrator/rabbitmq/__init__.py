"""RabbitMQ by pika, and no other package knows pika.

``addresses`` and ``connection`` say where the broker is and how it answers no; ``wire`` drives
connections on the caller's own thread; ``frames`` and ``publisher`` are the fast path of a lane;
``admin`` is a short connection for declaring and looking up; ``management`` reads the optional
HTTP API, ``server`` what AMQP tells without it.
"""
