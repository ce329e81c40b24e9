"""Tests of ``migrator.cli.html.page``: what all pages have to keep."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from migrator.cli.html import preview_page, verify_page
from migrator.cli.html.page import (
    About,
    counted,
    grouped,
    marked,
    page,
    size_words,
    span_words,
    visible,
)
from migrator.domain.timeouts import QueueName
from tests.unit.cli.html.reading import Page, read, spaced
from tests.unit.cli.html.samples import (
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
    names = {each.name for each in (files("migrator.cli.html") / "templates").iterdir()}
    assert names >= {"page.html", "parts.html", "preview.html", "verify.html", "page.css"}


def test_numbers_are_grouped() -> None:
    """And what is not known is not 0."""
    assert grouped(1_234_567) == "1\u202f234\u202f567"
    assert (grouped(0), grouped(None)) == ("0", "not known")
    assert (counted(1, "row"), counted(2, "row")) == ("1 row", "2 rows")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "less than a second"),
        (1, "1 second"),
        (93.2, "1.6 minutes"),
        (3_600, "1 hour"),
        (86_400 * 24, "24 days"),
        (2**27, "4.3 years"),
    ],
)
def test_spans_are_told_as_people_do(seconds: float, words: str) -> None:
    """In one unit."""
    assert span_words(seconds) == words


@pytest.mark.parametrize(
    ("size", "words"), [(1, "1 byte"), (2_048, "2 KiB"), (3_500_000, "3.3 MiB"), (2**34, "16 GiB")]
)
def test_sizes_are_told_as_people_do(size: int, words: str) -> None:
    """In one unit."""
    assert size_words(size) == words


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Sales", "Sales"),
        ("Größe 売上", "Größe 売上"),
        ("a\u202eb", "a\\u202eb"),
        ("\x00\n\t", "\\x00\\n\\t"),
        ("\ud800", "\\ud800"),
        (7, 7),
        (Markup("<b>\n</b>"), Markup("<b>\n</b>")),
    ],
)
def test_what_nobody_would_see_is_spelt_out(value: object, shown: object) -> None:
    """Controls, directions and halves of characters."""
    assert visible(value) == shown


def test_backticks_mark_code() -> None:
    """And nothing else gets through."""
    assert marked("run `migrator <x>` & go") == "run <code>migrator &lt;x&gt;</code> &amp; go"
    assert marked("one ` <alone>") == "one ` &lt;alone&gt;"
