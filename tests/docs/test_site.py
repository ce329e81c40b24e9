"""The site of the documentation: it builds without a warning, whole, and needs nobody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

from dev.commonmark import on_page_markdown
from migrator.delays.routing import routing_key
from migrator.nservicebus.timeouts import QueueName
from tests.docs.test_reference import anchors

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
_STRUCTURE: Final = {"h1", "h2", "h3", "h4", "ol", "ul", "li", "table", "tr", "pre"}


def build(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build a site, warnings being errors."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", into],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site built just now."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Tags(HTMLParser):
    """Collects what a page is made of, and what it makes a browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.structure: list[str] = []
        self.loaded: list[str] = []
        self.classes: set[str] = set()
        self._in_article = "<article" not in text
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        given = {name: value or "" for name, value in attrs}
        self._in_article |= tag == "article"
        if self._in_article and tag in _STRUCTURE:
            self.structure.append(tag)
        if tag != "a":
            self.loaded += [given[name] for name in ("src", "href", "srcset") if name in given]
        self.classes.update(given.get("class", "").split())

    def handle_endtag(self, tag: str) -> None:
        """Note the end of what was written by hand."""
        if tag == "article":
            self._in_article = False


def html_of(site: Path, page: Path) -> str:
    """Return a built page."""
    return (site / page.with_suffix(".html")).read_text(encoding="utf-8")


def test_every_page_has_the_structure_it_was_written_with(site: Path) -> None:
    """Lists, tables and code are where a reader of CommonMark would see them."""
    commonmark = MarkdownIt("commonmark").enable("table")
    for page in PAGES:
        wanted = Tags(commonmark.render((DOCS / page).read_text(encoding="utf-8"))).structure
        assert Tags(html_of(site, page)).structure == wanted, str(page)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Neither pages nor styles name another machine; what draws diagrams comes with the site."""
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        tags = Tags(text)
        assert [url for url in tags.loaded if "//" in url] == [], path.name
        if "mermaid" in tags.classes:  # else the theme fetches what draws it
            assert any(url.endswith("assets/mermaid.min.js") for url in tags.loaded)
        assert "md-source" not in tags.classes
        assert str(ROOT) not in text
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("- a\n  - c\n    d\n- e\n", "- a\n    - c\n        d\n- e\n"),
        ("```text\n- a\n  b\n```\n- c\n  d\n", "```text\n- a\n  b\n```\n- c\n    d\n"),
        ("1. a\n\n   b\n2. c\n\nd\n- e\n- f\n", "1. a\n\n    b\n\n2. c\n\nd\n- e\n- f\n"),
    ],
    ids=["list in a list", "list in code", "loose list"],
)
def test_what_belongs_to_an_item_is_indented_by_four(written: str, read: str) -> None:
    """Python-Markdown wants that; nothing else of a page is changed."""
    assert on_page_markdown(written) == read


def test_files_that_a_page_names_exist() -> None:
    """Tests, units and scripts are where the pages say."""
    pattern = r"`((?:tests|dev|systemd|monitoring|requirements)/[\w./@-]+\.\w+)`|^\./(dev/[\w-]+)"
    for page in (*PAGES, Path("../README.md")):
        text = (DOCS / page).read_text(encoding="utf-8")
        named = {one or other for one, other in re.findall(pattern, text, re.MULTILINE)}
        assert [name for name in named if not (ROOT / name).exists()] == [], str(page)


def test_the_promise_is_explained_in_its_own_words() -> None:
    """Each phrase of the table stands in the promise; each line of the list has its tests."""
    text = (DOCS / "promise.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    kinds = re.findall(r"^\| \*\*(\w+)\*\* \|", text, re.MULTILINE)
    assert kinds == ["Loss", "Duplicates", "Earliness", "Lateness"]
    listed = [
        line for line in text.partition("\n## What each")[0].splitlines() if "`tests/" in line
    ]
    assert len(listed) == 9
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
    promise = next(line for line in lines if line.startswith("> "))
    phrases = [phrase for line in lines for phrase in re.findall(r"^\| \*(?!\*)(.+?)\* \|", line)]
    assert len(phrases) == 13
    for part in (part.strip() for phrase in phrases for part in phrase.split("…")):
        assert part in promise


def test_every_answer_of_what_if_is_found_by_a_symptom() -> None:
    """The page opens with what somebody sees at three in the morning."""
    text = (DOCS / "what-if.md").read_text(encoding="utf-8")
    table, _, answers = text.partition("\n## ")
    found = set(re.findall(r"\]\(#([^)]+)\)", table))
    assert found == anchors(f"## {answers}")


def test_the_example_of_the_levels_is_right() -> None:
    """Ten seconds for Sales have the routing key that the page shows."""
    lines = (DOCS / "levels.md").read_text(encoding="utf-8").splitlines()
    assert routing_key(10, QueueName("Sales")) in lines
