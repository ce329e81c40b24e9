"""The drawing of the packages in docs/architecture.md, from the imports that are in the code."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
_BEGIN: Final = "<!-- layers: ./dev/docs draws them from the imports -->\n"
_END: Final = "<!-- end of layers -->\n"
_UNDRAWN: Final = {"__main__", "errors", "text", "tls", "documents"}
"""What everything may import, and what imports the command line."""


def layers() -> Sequence[Sequence[str]]:
    """Return the packages of each layer, topmost first, as import-linter enforces them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (ordered,) = (each for each in contracts["contracts"] if each["type"] == "layers")
    found = [layer.replace(" ", "").split("|") for layer in ordered["layers"]]
    return [kept for layer in found if (kept := [name for name in layer if name not in _UNDRAWN])]


def imports() -> Mapping[str, set[str]]:
    """Return for each package the others that it imports, also inside functions and for types."""
    graph = grimp.build_graph("migrator")
    names = [name for layer in layers() for name in layer]
    found: dict[str, set[str]] = {name: set() for name in names}
    for importer in graph.modules:
        above = _package(importer)
        for imported in graph.find_modules_directly_imported_by(importer):
            below = _package(imported)
            if above in found and below in found and above != below:
                found[above].add(below)
    return found


def drawn() -> str:
    """Return the drawing in Mermaid; what an arrow passes through has no arrow of its own.

    Raises:
        ValueError: An import goes up, or to a package of the same layer.
    """
    found, order = imports(), layers()
    depth = {name: number for number, layer in enumerate(order) for name in layer}
    for above, below in sorted((a, b) for a, names in found.items() for b in names):
        if depth[above] >= depth[below]:
            raise ValueError(f"migrator.{above} imports migrator.{below}, which is not below it")
    reached = {name: _reached(name, found) for name in sorted(found, key=lambda each: -depth[each])}
    lines = ["```mermaid", "flowchart TB"]
    for layer in order:
        if len(layer) > 1:
            lines.append(f'    subgraph {layer[0]}_and_more [" "]')
        lines += [f'    {name}["<b>{name}</b><br/>{_sentence(name)}"]' for name in sorted(layer)]
        if len(layer) > 1:
            lines.append("    end")
    for above in sorted(found, key=lambda each: (depth[each], each)):
        through = {far for near in found[above] for far in reached[near]}
        lines += [f"    {above} --> {below}" for below in sorted(found[above] - through)]
    return "\n".join([*lines, "```", ""])


def page() -> str:
    """Return docs/architecture.md with the drawing as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{drawn()}\n{_END}{after}"


def _package(module: str) -> str:
    return f"{module}.".split(".")[1]


def _reached(name: str, found: Mapping[str, set[str]]) -> set[str]:
    return set().union(*({near} | _reached(near, found) for near in found[name]))


def _sentence(package: str) -> str:
    """Return what the package's docstring says in its first line."""
    folder = ROOT / "migrator" / package
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    first = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()[0]
    return escape(first.rstrip(".").replace("`", ""))
