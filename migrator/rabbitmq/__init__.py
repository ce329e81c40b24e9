"""RabbitMQ by pika; no other package imports pika, and nothing here knows of delays.

Start with ``connection``: how it connects to one of ``addresses``, and what errors become. A lane
works over ``event_loop``, ``messages`` and ``publisher``; ``frames`` reads what comes by the
thousand. ``admin`` and ``server`` use short connections to declare and inspect; ``management``
reads the optional HTTP API.
"""
