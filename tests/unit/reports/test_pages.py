"""Tests of ``migrator.reports.pages``: what all pages have to keep."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from jinja2 import UndefinedError

from migrator.nservicebus.timeouts import QueueName
from migrator.reports.pages import About, page
from migrator.reports.preview import preview_page
from migrator.reports.verify import verify_page
from migrator.reports.words import visible
from tests.unit.reports.reading import Page, read, spaced
from tests.unit.reports.samples import (
    ABOUT,
    HOSTILE,
    balance,
    dispatched,
    endpoint,
    found,
    place,
    preview,
    verification,
)

NICE = "Sales"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section"),
    *("div", "p", "h1", "h2", "h3", "dl", "dt", "dd", "ul", "ol", "li", "span", "strong", "small"),
    *("code", "bdi", "data", "time", "table", "caption", "colgroup", "col", "thead", "tbody"),
    *("tr", "th", "td", "svg", "rect"),
}


def pages_about(name: str) -> list[str]:
    """Return one page of each kind in which everything that has a name is called *name*."""
    about = About(version="0.1.0", ledger=name, options=name, not_checked=[name])
    one = endpoint(name, source=name, destinations={QueueName(name): 3}, zone_offsets={})
    one.quarantine[next(iter(one.quarantine))].examples[:] = [name]
    one.quarantine[next(iter(one.quarantine))].detail = name
    modes = {name: "migrate", "Sent": "dispatch"}
    sent = {**dispatched("Sent"), "destinations": {name: 1}}
    previewed = preview(one, endpoint("Other"), modes={**modes, "Other": "migrate"})
    checked = verification(
        endpoints=[balance(name, handed_over=4)],
        destinations=[place(name, waiting=3), place(None, waiting=1)],
        discrepancies=[found(name, name)],
        not_checked=[name],
        digest="abc",
    )
    return [
        preview_page({**previewed, "dispatched": [sent]}, about=about),
        verify_page(checked, about=about),
    ]


def shape(text: str) -> list[tuple[str, list[str]]]:
    """Return all tags of a page, with the names of their attributes; backticks make code."""
    return [(tag, sorted(attrs)) for tag, attrs in read(text).tags if tag != "code" or attrs]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_changes_the_page(name: str) -> None:
    """Tags and attributes are those of a page about nice names, and the name is text."""
    for text, nice in zip(pages_about(name), pages_about(NICE), strict=True):
        assert shape(text) == shape(nice)
        assert text.encode()
        readable = spaced(str(visible(name)).replace("`", ""))
        assert readable in read(text).text.replace("`", "")


@pytest.mark.parametrize("kind", [0, 1], ids=["preview", "verify"])
@pytest.mark.parametrize("name", [NICE, HOSTILE[4]])
def test_a_page_has_no_script_and_loads_nothing(name: str, kind: int) -> None:
    """Neither by an element, nor by an attribute, nor by its style."""
    text = pages_about(name)[kind]
    seen: Page = read(text)
    assert {tag for tag, _ in seen.tags} <= TAGS
    for _, attributes in seen.tags:
        assert not {each for each in attributes if each.startswith("on")}
        assert not {"src", "href", "srcset", "style", "xmlns", "action"} & set(attributes)
    assert not re.search(r"url\(|@import|expression|http|//", seen.style)
    assert not re.search(r"https?:|src=|@import|url\(", text)
    policy = next(a["content"] for tag, a in seen.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")


def test_a_page_says_when_which_and_what_was_not_checked() -> None:
    """Whoever gets it by mail has nothing else."""
    for text in (
        preview_page(preview(endpoint()), about=ABOUT),
        verify_page(verification(not_checked=["level 21"]), about=ABOUT),
    ):
        seen = read(text).text
        assert "taken 2031-03-04 02:58:11 UTC version 0.1.0 ledger fd0b44d9ce25" in seen
        assert "What was not checked" in seen
        assert "What to do next" in seen


def test_pages_fit_phones_printers_and_dark_rooms() -> None:
    """By their style alone."""
    text = verify_page(verification(), about=ABOUT)
    style = read(text).style
    for rule in ("@media (max-width", "@media print", "@media (prefers-color-scheme: dark)"):
        assert rule in style
    assert 'name="viewport"' in text


def test_what_is_missing_is_an_error() -> None:
    """Not an empty place in a report."""
    with pytest.raises(UndefinedError):
        page("preview.html", about=ABOUT)


def test_the_templates_are_in_the_package() -> None:
    """Where a wheel has them, too."""
    names = {each.name for each in (files("migrator.reports") / "templates").iterdir()}
    assert names >= {"page.html", "preview.html", "verify.html", "parts.html", "base.css"}
