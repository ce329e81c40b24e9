"""When does each message arrive? A consumer that reads times and nothing else.

    .venv/bin/python -m benchmarks.arrivals amqp://… Billing FILE

A process of its own. It speaks AMQP itself and skips whatever is no body: a few microseconds a
message, so that it takes no core from what is measured, and never is what messages wait for.
A body begins with one letter and the due time in seconds since 1970, 17 characters.
Writes to FILE, when its stdin ends: JSON with ``read`` (letter, due, arrived), ``cpu_s`` and
``full_reads``, how often as much had come as one read takes: then it was too slow.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pika import frame, spec

_FRAME: Final = struct.Struct(">BHI")
_BODY: Final = 3
_READ_BYTES: Final = 2**20
_TELL_EVERY_S: Final = 0.5


def body(letter: str, due_s: float, size_bytes: int) -> bytes:
    """Return the body of a message due at *due_s*, at least so long."""
    return f"{letter}{due_s:017.6f}".encode().ljust(size_bytes, b" ")


def connected(url: str, queue: str) -> socket.socket:
    """Return a socket on which the messages of *queue* come, acknowledged by being sent."""
    parts = urlsplit(url)
    made = socket.create_connection((parts.hostname or "", parts.port or 5672))
    answers = made.makefile("rb", buffering=0)

    def read(count: int) -> bytes:
        found = b""
        while len(found) < count:
            found += answers.read(count - len(found)) or sys.exit("the broker closed")
        return found

    def ask(channel: int, method: object | None, *, is_answered: bool = True) -> None:
        if method is not None:
            made.sendall(frame.Method(channel, method).marshal())
        if is_answered:
            _, _, size = _FRAME.unpack(read(_FRAME.size))
            read(size + 1)

    made.sendall(b"AMQP\x00\x00\x09\x01")
    ask(0, None)
    secret = f"\0{unquote(parts.username or '')}\0{unquote(parts.password or '')}"
    ask(0, spec.Connection.StartOk({}, "PLAIN", secret, "en_US"))
    ask(0, spec.Connection.TuneOk(2047, 131_072, 0), is_answered=False)
    ask(0, spec.Connection.Open(unquote(parts.path[1:])))
    ask(1, spec.Channel.Open())
    ask(1, spec.Basic.Consume(queue=queue, no_ack=True))
    return made


def main() -> None:
    """Read until stdin ends; tell on stdout how many came, now and then."""
    url, queue, file = sys.argv[1:]
    wire = connected(url, queue)
    print("ready", flush=True)
    found: list[tuple[str, float, float]] = []
    data, full_reads, tell_s = b"", 0, 0.0
    while True:
        ready, _, _ = select.select([wire, sys.stdin], [], [], _TELL_EVERY_S)
        if sys.stdin in ready:
            break
        now_s = time.time()
        if now_s > tell_s:
            print(len(found), flush=True)
            tell_s = now_s + _TELL_EVERY_S
        if wire not in ready:
            continue
        got = wire.recv(_READ_BYTES)
        now_s = time.time()
        full_reads += len(got) == _READ_BYTES
        data += got
        at = 0
        while len(data) - at > _FRAME.size:
            kind, _, size = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + size + 1
            if end > len(data):
                break
            if kind == _BODY:
                text = data[at + _FRAME.size : at + _FRAME.size + 18].decode()
                found.append((text[0], float(text[1:]), now_s))
            at = end
        data = data[at:]
    cpu_s = time.process_time()
    Path(file).write_text(json.dumps({"read": found, "cpu_s": cpu_s, "full_reads": full_reads}))


if __name__ == "__main__":
    main()
