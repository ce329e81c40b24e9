"""The size and shape of the code, as one table: ``python -m dev.measure [--flow]``.

Code lines are lines with code on them: no blanks, no comments, no docstrings. ``--flow`` starts a
RabbitMQ node, moves one timeout out of a SQLite file, and counts the files of the package in which
a function ran until the first claim was done; that takes half a minute.
"""

from __future__ import annotations

import ast
import inspect
import io
import os
import re
import sys
import tempfile
import threading
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SMALL: Final = 60
CAPABILITIES: Final = {
    "recall": ("recall", "rollback"),
    "verify": ("verif",),
    "decommission": ("decommission", "delays_delete"),
    "dispatcher": ("dispatch", "satellite"),
}
"""What the files of a capability have in their names, wherever they are."""
_FAULT: Final = re.compile(r'fault\("([a-z_]+\.[a-z_]+)"\)')
_POINT: Final = re.compile(r'"([a-z_]+\.(?!html")[a-z_]+)"')
_NO_CODE: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(source: str) -> int:
    """Return how many lines of *source* have code on them."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def protocols(source: str) -> int:
    """Return how many Protocols *source* defines."""
    return sum(
        any("Protocol" in ast.unparse(base) for base in node.bases)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    )


def python_files(folder: Path) -> list[Path]:
    """Return the Python files below *folder*, in order."""
    return sorted(each for each in folder.rglob("*.py") if "__pycache__" not in each.parts)


def table(package: Path, tests: Path) -> Iterator[tuple[str, int | str]]:
    """Yield each row: what is counted, and how many there are."""
    sources = {path: path.read_text() for path in python_files(package)}
    yield "code lines", sum(map(code_lines, sources.values()))
    yield "Python files", len(sources)
    yield (
        f"files under {SMALL} lines",
        sum(len(each.splitlines()) < SMALL for each in sources.values()),
    )
    yield "Protocols", sum(map(protocols, sources.values()))
    for capability, marks in CAPABILITIES.items():
        folders = {
            str(path.parent.relative_to(package))
            for path in sources
            if any(mark in str(path.relative_to(package)) for mark in marks)
        }
        yield f"folders of {capability}, cli apart", len(folders - {"cli"})
    written = {path: path.read_text() for path in python_files(tests)}
    yield "lines in tests", sum(len(each.splitlines()) for each in written.values())
    rules = ast.walk(ast.parse(written[tests / "contract" / "rules.py"]))
    yield (
        "promises of stores",
        sum(isinstance(node, ast.Call) and ast.unparse(node.func) == "Rule" for node in rules),
    )
    points = fault_points(sources.values())
    tried = {name for each in written.values() for name in _POINT.findall(each)}
    yield "steps at which a test may end the program", len(points)
    yield "of them ended at in tests", len(points & tried)


def fault_points(sources: Iterable[str]) -> set[str]:
    """Return the names of all steps: those given to ``fault`` in place, and others like them."""
    texts = [*sources]
    kinds = {name.split(".")[0] for text in texts for name in _FAULT.findall(text)}
    names = {name for text in texts for name in _POINT.findall(text)}
    return {name for name in names if name.split(".")[0] in kinds}


def longest(package: Path, count: int = 10) -> Iterator[tuple[str, int]]:
    """Yield the longest files, then the longest functions, by lines."""
    sources = {path: path.read_text() for path in python_files(package)}
    files = {
        str(path.relative_to(package)): len(each.splitlines()) for path, each in sources.items()
    }
    functions = {
        f"{path.relative_to(package)} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, each in sources.items()
        for node in ast.walk(ast.parse(each))
        if isinstance(node, ast.FunctionDef)
    }
    for found in (files, functions):
        yield from sorted(found.items(), key=lambda item: -item[1])[:count]


def files_to_first_claim() -> int:
    """Return in how many files of the package a function ran until a row was claimed.

    ``migrator run --once`` on real servers of this call's own. Files that only define values count
    when one of their functions ran.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from dev.servers import RabbitNode
    from migrator.cli import main

    seen: set[str] = set()
    package = str(ROOT / "migrator")
    done = threading.Event()

    def note(frame: FrameType, _event: str, _argument: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # no module, no body of a class
        if is_function and not done.is_set() and code.co_filename.startswith(package):
            seen.add(code.co_filename)

    taken: set[Any] = set()  # preflight tries a claim too, and rolls it back

    def executed(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith("DELETE FROM") and "TimeoutData" in statement:
            taken.add(connection)

    def committed(connection: Any) -> None:
        if connection in taken:
            done.set()

    with tempfile.TemporaryDirectory() as folder, RabbitNode() as node:
        os.environ |= {
            "MIGRATOR_STORE__URL": f"sqlite:///{folder}/legacy.db",
            "MIGRATOR_BROKER__URL": node.amqp_url(),
            "MIGRATOR_BROKER__DELAYS": "v2",
            "MIGRATOR_WEB__SOCKET": "",
        }
        _quietly(main, "db", "upgrade")
        seed = ("seed", "--yes", "--endpoint", "Sales", "--count", "1")
        _quietly(main, *seed, "--destinations", "Billing")
        _quietly(main, "delays", "create")
        _declare_receiver(node, "Billing")
        event.listen(Engine, "after_cursor_execute", executed)
        event.listen(Engine, "commit", committed)
        event.listen(Engine, "rollback", taken.discard)
        threading.setprofile(note)
        sys.setprofile(note)
        _quietly(main, "run", "--once", "--endpoint", "Sales")
        sys.setprofile(None)
        threading.setprofile(None)
    if not done.is_set():
        raise SystemExit("nothing was claimed")
    return len(seen)


def _quietly(main: Any, *arguments: str) -> None:
    try:
        main(arguments)
    except SystemExit as ended:
        if ended.code:
            raise


def _declare_receiver(node: Any, name: str) -> None:
    import pika

    with pika.BlockingConnection(pika.URLParameters(node.amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        channel.exchange_declare(name, "fanout", durable=True)
        channel.queue_bind(name, name)


def main() -> None:
    """Print the table."""
    rows: list[tuple[str, int | str]] = [*table(ROOT / "migrator", ROOT / "tests")]
    if "--flow" in sys.argv:
        rows.append(("files from `migrator run` to the first claim", files_to_first_claim()))
    if "--longest" in sys.argv:
        rows += longest(ROOT / "migrator")
    for what, count in rows:
        print(f"{count:>7}  {what}")


if __name__ == "__main__":
    main()
