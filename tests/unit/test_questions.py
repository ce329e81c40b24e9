"""A question answers; a command acts: what is named like a question changes nothing.

Two questions once wrote ``handed_over``, called from inside an event loop as the condition to stop
waiting. So a function that is named like a question, a property, and a lambda that something waits
for assigns no attribute, writes nothing and waits for nothing; nor does what they call in their
class.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import migrator

ROOT = Path(migrator.__file__).parent
QUESTION = re.compile(r"_?(is|has|may|can|holds|was|were|should|needs)_")
ACTS = frozenset(
    {
        *(
            "ack",
            "ack_all",
            "add",
            "advance",
            "append",
            "clear",
            "commit",
            "debug",
            "discard",
            "error",
        ),
        *(
            "evict",
            "exception",
            "execute",
            "info",
            "nack",
            "pause",
            "pop",
            "publish",
            "put",
            "release",
        ),
        *("remove", "resume", "send", "set", "ack_receipt", "sleep", "start", "stop", "submit"),
        *("update", "wait", "warning", "write"),
    }
)
"""Methods that change or wait for something; of a local value they do not count."""
WAITS = frozenset({"wait", "wait_for"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_question(function: Function) -> bool:
    """Return whether *function* is named like one, or is a property."""
    decorators = {ast.unparse(each) for each in function.decorator_list}
    is_property = bool(decorators & {"property", "cached_property"})
    return is_property or QUESTION.match(function.name) is not None


def act_of(node: ast.AST, methods: Mapping[str, Function], seen: frozenset[str]) -> str | None:
    """Return what *node* does that no question may do; None: it only answers."""
    local = {"cls"} | {
        each.id
        for part in ast.walk(node)
        for each in ast.walk(part)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Store()):
                return f"sets self.{attribute}"
        if not (isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)):
            continue
        name, base = part.func.attr, part.func.value
        if isinstance(base, ast.Name) and base.id == "self" and name in methods:
            if name not in seen and (act := act_of(methods[name], methods, seen | {name})):
                return f"{name} → {act}"
        elif name in ACTS and not (isinstance(base, ast.Name) and base.id in local):
            return f"calls {ast.unparse(part.func)}"
    return None


def questions_that_act(source: str) -> Iterator[tuple[int, str]]:
    """Return the line of each, with what it does."""
    tree = ast.parse(source)
    for scope in (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)):
        methods = {node.name: node for node in scope.body if isinstance(node, Function)}
        for name, function in methods.items():
            if is_question(function) and (act := act_of(function, methods, frozenset({name}))):
                yield function.lineno, f"{name}: {act}"
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                if not (isinstance(call.func, ast.Attribute) and call.func.attr in WAITS):
                    continue
                for given in (arg for arg in call.args if isinstance(arg, ast.Lambda)):
                    if act := act_of(given.body, methods, frozenset()):
                        yield given.lineno, f"what {name} waits for: {act}"


@pytest.mark.parametrize(
    "body",
    [
        "self.seen = 1",
        "return self.batches.advance(1)",
        "self._note()",
        "self.changed.wait_for(lambda: self._note(), 1.0)",
    ],
)
def test_an_act_is_found(body: str) -> None:
    """Or this test would find nothing."""
    name = "wait_so_long" if "wait_for" in body else "is_whole"
    source = f"class A:\n def {name}(self): {body}\n def _note(self): self.x.advance()"
    assert len(list(questions_that_act(source))) == 1


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_question_changes_nothing(path: Path) -> None:
    """It may be asked at any time, and any number of times."""
    assert list(questions_that_act(path.read_text(encoding="utf-8"))) == []
