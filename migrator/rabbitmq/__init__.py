"""RabbitMQ by pika; no other package knows pika, and nothing here knows of delays.

Start with ``connection``: where the broker is (``addresses``) and how it says no. A lane works
over ``event_loop``, ``messages`` and ``publisher``; ``admin`` and ``server`` are short
connections that declare and look; ``management`` reads the optional HTTP API.
"""
