"""The status page on a real server, asked as a browser without script would."""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import httpx
import pytest

from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.web import auth, status_page
from migrator.web.control import (
    Adjust,
    Discard,
    Drain,
    Pause,
    Resume,
    Retry,
    RuntimeSetting,
    StopNow,
)
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve
from tests.support.documents import HOOKS
from tests.support.moving import BILLING, SALES, MovingPanel
from tests.support.panel import MemoryPanel

HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104 - to be reached by others
TOKEN = "correct horse battery"
WHO = "alice, status page from 127.0.0.1"
COMMANDS = [
    f"/page/{verb}" for verb in ("pause", "resume", "set", "drain", "stop", "retry", "discard")
]


@dataclass(slots=True)
class Visitor:
    """A browser, as far as forms and cookies go."""

    base: str
    client: httpx.Client
    panel: MemoryPanel

    def get(self, path: str) -> httpx.Response:
        """Follow a link."""
        return self.client.get(path)

    def post(self, path: str, data: dict[str, str], **headers: str) -> httpx.Response:
        """Send a form, as a page from here would; with *headers* instead where they are given."""
        return self.client.post(path, data=data, headers={"origin": self.base, **headers})

    def log_in(self, token: str = TOKEN, **headers: str) -> httpx.Response:
        """Fill in the login form."""
        return self.post("/page/login", {"token": token, "name": "alice"}, **headers)

    def secret(self) -> str:
        """Return what the forms of the page carry."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        assert found is not None
        return found[1]


@contextmanager
def visiting(
    panel: MemoryPanel,
    token: str | None = TOKEN,
    host: str = HERE,
    *,
    open_to_local: bool = True,
) -> Iterator[Visitor]:
    """Visit the page of *panel*, which is listened for at *host*."""
    plan = WebPlan(listen=(host, 0), token=token, open_to_local=open_to_local)
    with serve(panel, plan, Instruments()) as served:
        assert served.address is not None
        base = f"http://{HERE}:{served.address[1]}"
        with httpx.Client(base_url=base, trust_env=False, event_hooks=HOOKS) as client:
            yield Visitor(base, client, panel)


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    """Somebody who is not logged in."""
    with visiting(MovingPanel()) as found:
        yield found


@pytest.fixture
def alice(visitor: Visitor) -> Visitor:
    """The same, logged in."""
    assert visitor.log_in().status_code == 303
    return visitor


def text_of(answer: httpx.Response) -> str:
    """Return what people read of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


# ── looking ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("host", "header", "open_to_local"),
    [
        (HERE, {}, False),
        (HERE, {"x-forwarded-for": "203.0.113.9"}, True),
        (EVERYWHERE, {}, True),
    ],
    ids=["here", "through a proxy", "where others come in"],
)
def test_with_a_token_even_looking_needs_the_login(
    host: str, header: dict[str, str], open_to_local: bool
) -> None:
    """Unless it is said that whoever is on this machine may look; monitoring needs no token."""
    with visiting(MovingPanel(), host=host, open_to_local=open_to_local) as visitor:
        visitor.client.headers.update(header)
        found = visitor.get("/")
        assert (found.status_code, found.headers["location"]) == (303, "/page/login")
        assert "Look without logging in" not in visitor.get("/page/login").text
        assert visitor.get("/page/live").status_code == visitor.get("/status").status_code == 401
        assert [visitor.get(path).status_code for path in ("/live", "/ready", "/metrics")] == [
            200
        ] * 3
        visitor.log_in()
        assert "Sales.Orders" in text_of(visitor.get("/"))


def test_whoever_is_on_this_machine_may_look(visitor: Visitor) -> None:
    """Without a login there is nothing to press, and no row is shown."""
    found = visitor.get("/")
    assert found.status_code == 200
    for told in ("Running", "Sales.Orders", "Quarantine", "The delay levels", "Log in"):
        assert told in text_of(found)
    assert "<form" not in found.text
    assert "<form" not in visitor.get("/page/live").text


def test_pages_have_a_policy_and_say_of_which_origin_their_forms_are(visitor: Visitor) -> None:
    """Everything comes from here; nothing else may run, and nobody may frame it."""
    for path in ("/", "/page/live", "/page/login"):
        headers = visitor.get(path).headers
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        assert headers["referrer-policy"] == "same-origin"
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
    for path, kind in (("style.css", "text/css"), ("script.js", "text/javascript")):
        assert visitor.get(f"/page/{path}").headers["content-type"].startswith(kind)
    assert visitor.get("/page/icon.svg").headers["content-type"].startswith("image/svg+xml")


def test_there_is_nothing_but_the_page(visitor: Visitor) -> None:
    """No folder is served, and commands still want their token."""
    for path in ("/page/", "/page/layout.html", "/page/..%2frouting.py", "/page/static/script.js"):
        assert visitor.get(path).status_code == 404
    assert visitor.post("/control", {}).status_code == 401
    assert visitor.get("/status").json()["schema"] == "migrator/daemon/1"


def test_without_a_token_there_is_no_login() -> None:
    """The page says what to set; whatever is sent, nothing is done; nor without the page."""
    with visiting(MemoryPanel(), token=None) as visitor:
        assert "web.token_file" in visitor.get("/").text
        assert visitor.get("/page/login").status_code == 403
        for token in ("", "None", TOKEN):
            assert visitor.log_in(token).status_code == 401
        assert visitor.post("/page/pause", {"csrf": ""}).status_code == 401
        refused = visitor.client.post("/control", headers={"authorization": f"Bearer {TOKEN}"})
        assert (refused.status_code, "no token is set" in refused.text) == (403, True)
        assert not visitor.panel.told


# ── logging in ──────────────────────────────────────────────────────────────────────────────────


def test_the_token_gives_a_cookie_that_no_script_sees(visitor: Visitor) -> None:
    """It goes to our own pages only, has nothing of the token, and ends by itself."""
    found = visitor.log_in()
    cookie = found.headers["set-cookie"].lower()
    for part in ("httponly", "samesite=strict", "path=/", f"max-age={auth.LIFE_S}"):
        assert part in cookie
    assert "secure" not in cookie
    assert TOKEN not in found.headers["set-cookie"]
    assert "alice" in text_of(visitor.get("/"))


def test_a_wrong_token_is_refused_and_keeps_nobody_out(
    visitor: Visitor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are wrong, the right one is taken: behind a proxy all have one address."""
    monkeypatch.setattr(auth, "WRONG_S", 0.01)
    caplog.set_level(logging.INFO)
    wrong = visitor.log_in("correct horse batter")
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert "The token is wrong." in text_of(wrong)
    for _ in range(39):
        assert visitor.log_in("another secret thing").status_code == 401
    assert "<form" not in visitor.get("/").text
    lines = json.dumps([record.__dict__ for record in caplog.records], default=str)
    assert lines.count("web_login_refused") == 40
    assert TOKEN not in lines
    assert "another secret thing" not in lines
    monkeypatch.setattr(auth, "WRONG_S", 60)  # a wrong one would wait for too long
    assert visitor.log_in().status_code == 303


@pytest.mark.parametrize("path", ["/", "/page/quarantine", "/page/settings", "/page/end"])
def test_every_page_says_which_system_it_is(alice: Visitor, path: str) -> None:
    """Above all where something is about to be discarded, or ended."""
    assert 'href="/">Acme orders, production</a>' in alice.get(path).text


def test_it_says_where_it_works_and_for_how_long(visitor: Visitor) -> None:
    """Database, virtual host and ledger, below the headline; without a login as well."""
    found = text_of(visitor.get("/"))
    assert "app1, for 2.2 hours" in found
    assert "database orders at db-07" in found
    assert "broker mq-01:5672, virtual host orders" in found
    assert "ledger b31f0c9a" in found


def test_logging_out_ends_the_session_here(alice: Visitor) -> None:
    """A cookie that somebody kept is worth nothing afterwards."""
    kept, secret = dict(alice.client.cookies), alice.secret()
    assert alice.post("/page/logout", {"csrf": secret}).status_code == 303
    alice.client.cookies.update(kept)
    assert "<form" not in alice.get("/").text
    assert alice.post("/page/pause", {"csrf": secret}).status_code == 401


# ── acting ──────────────────────────────────────────────────────────────────────────────────────


def test_pause_and_resume_without_script(alice: Visitor) -> None:
    """A form is sent, and the next page tells once what came of it."""
    form = {"csrf": alice.secret(), "endpoint": SALES, "reason": "index rebuild"}
    found = alice.post("/page/pause", form)
    assert (found.status_code, found.headers["location"]) == (303, "/")
    assert "Done: Sales.Orders is paused" in text_of(alice.get("/"))
    assert "Done:" not in text_of(alice.get("/"))
    alice.post("/page/pause", {"csrf": alice.secret(), "endpoint": "", "reason": " "})
    alice.post("/page/resume", {"csrf": alice.secret()})
    assert [command for command, _ in alice.panel.told] == [
        Pause(endpoint=SALES, reason="index rebuild"),
        Pause(endpoint=None, reason="no reason was given"),
        Resume(endpoint=None),
    ]
    assert {who for _, who in alice.panel.told} == {WHO}


def test_a_setting_is_changed_as_by_the_command(alice: Visitor) -> None:
    """The page shows what is in force, and tells once what came of it."""
    form = {"csrf": alice.secret(), "setting": "batch_size", "value": "250"}
    found = alice.post("/page/set", form)
    assert (found.status_code, found.headers["location"]) == (303, "/page/settings")
    shown = alice.get("/page/settings")
    assert "Done: batch_size is 250" in text_of(shown)
    assert 'name="value" value="250"' in shown.text
    assert alice.panel.told == [(Adjust(setting=RuntimeSetting.BATCH_SIZE, value="250"), WHO)]


def test_a_rate_limit_is_told_where_the_rate_is(alice: Visitor) -> None:
    """So that nobody takes it for a slow broker; without one nothing is said."""
    told = "moved limited to 1500 rows/s by rate_limit"
    for value, is_told in (("1500", True), ("0", False)):
        form = {"csrf": alice.secret(), "setting": "rate_limit", "value": value}
        alice.post("/page/set", form)
        found = text_of(alice.get("/"))
        assert (told in found, "limited to" in found) == (is_told, is_told)


def test_what_cannot_be_set_is_told_where_it_was_typed(alice: Visitor) -> None:
    """The form keeps what was typed, whatever it is; the settings stay as they were."""
    before = dict(alice.panel.snapshot().settings)
    for setting, value, status, told in (
        ("cutoff", "<b>soon</b>", 409, "cutoff cannot be '<b>soon</b>'"),
        ("batch_size", " ", 400, "value must be given"),
        ("mode", "direct", 400, "setting must be one of"),
    ):
        found = alice.post(
            "/page/set", {"csrf": alice.secret(), "setting": setting, "value": value}
        )
        assert (found.status_code, told in text_of(found)) == (status, True)
        if status == 409:
            assert f'value="{html.escape(value)}"' in found.text
            assert f"It is still {before[setting]}." in text_of(found)
    assert alice.panel.snapshot().settings == before


def test_to_end_it_takes_a_second_step(alice: Visitor) -> None:
    """The first page only asks; the answer comes at once, for nothing may be there to go to."""
    asked = alice.get("/page/end")
    assert "No timeout is lost either way" in text_of(asked)
    assert not alice.panel.told
    for verb in ("drain", "stop"):
        assert f'action="/page/{verb}"' in asked.text
        found = alice.post(f"/page/{verb}", {"csrf": alice.secret()})
        assert (found.status_code, "Done: finishing" in text_of(found)) == (200, True)
        assert alice.get(f"/page/{verb}").status_code == 405
    assert alice.panel.told == [(Drain(), WHO), (StopNow(), WHO)]


def test_what_is_for_those_who_logged_in(visitor: Visitor) -> None:
    """Others are sent to the login, and nothing is done for them."""
    for path in ("/page/settings", "/page/end", "/page/quarantine"):
        found = visitor.get(path)
        assert (found.status_code, found.headers["location"]) == (303, "/page/login")
    for path in COMMANDS:
        assert visitor.post(path, {"setting": "lanes", "value": "1"}).status_code == 401
    assert not visitor.panel.told


def test_nothing_is_done_for_another_site(alice: Visitor) -> None:
    """Even with the cookie and the secret."""
    secret = alice.secret()
    for headers, status in (
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"host": "evil.example"}, 403),
        ({"content-type": "text/plain"}, 415),
    ):
        for path in (*COMMANDS, "/page/logout", "/page/login"):
            form = {"csrf": secret, "token": TOKEN}
            assert alice.post(path, form, **headers).status_code == status
    assert not alice.panel.told
    assert alice.secret() == secret


def test_a_form_of_no_page_or_without_the_secret_is_refused(alice: Visitor) -> None:
    """Nor is one with the secret of another session, also when both are the same person's."""
    old = alice.secret()
    assert alice.client.post("/page/pause", data={"csrf": old}).status_code == 403
    alice.client.cookies.clear()
    alice.log_in()
    wrong = [{"reason": "x"}, *({"csrf": guess} for guess in ("", old, "größer"))]
    for path, form in product((*COMMANDS, "/page/logout"), wrong):
        found = alice.post(path, form)
        assert (found.status_code, "nothing was done" in text_of(found)) == (403, True)
    assert not alice.panel.told
    assert "<form" in alice.get("/").text


def test_what_cannot_be_understood_is_told(alice: Visitor) -> None:
    """Nothing is done; neither many fields nor long ones are taken."""
    secret = {"csrf": alice.secret()}
    for form, status, told in (
        ({"reason": "two\nlines"}, 400, "reason must be one line"),
        ({"endpoint": "\x1b[2J"}, 400, "endpoint must be one line"),
        ({f"f{number}": "" for number in range(50)}, 400, "not a form"),
        ({"reason": "x" * 9_000}, 413, "more than"),
    ):
        found = alice.post("/page/pause", secret | form)
        assert (found.status_code, told in text_of(found)) == (status, True)
    assert alice.post("/page/login", {"token": TOKEN, "name": "x" * 61}).status_code == 400
    assert not alice.panel.told


# ── the quarantine ──────────────────────────────────────────────────────────────────────────────


def test_rows_are_shown_page_by_page(alice: Visitor) -> None:
    """Each once, and those that were asked for."""
    first = alice.get("/page/quarantine")
    ids = re.findall(r'name="id" value="([^"]+)"', first.text)
    assert len(ids) == status_page.ROWS
    (link,) = re.findall(r'<a href="([^"]+)">Next page', first.text)
    second = alice.get(html.unescape(link))
    rest = re.findall(r'name="id" value="([^"]+)"', second.text)
    assert len(set(ids + rest)) == 62
    assert "Next page" not in second.text
    some = alice.get("/page/quarantine?endpoint=Billing&reason=destination-unbound")
    assert len(re.findall(r'name="id" value', some.text)) == 3
    assert "Try 3 rows again" in text_of(some)
    for bad in ("reason=bad-luck", "after=x", "after=-1", "after=9999999999999999999"):
        assert alice.get(f"/page/quarantine?{bad}").status_code == 400


def test_the_content_of_a_row_is_for_who_has_logged_in(alice: Visitor) -> None:
    """As it is stored, and never as part of the page."""
    listed = alice.get("/page/quarantine?endpoint=Billing")
    (address, *_) = re.findall(r'href="(/page/quarantine/row[^"]+)"', listed.text)
    found = alice.get(html.unescape(address))
    assert "&lt;b&gt;1&lt;/b&gt;" in found.text
    assert "&lt;Body&gt;" in found.text
    with visiting(MovingPanel()) as other:
        assert other.get(html.unescape(address)).headers["location"] == "/page/login"
    assert alice.get("/page/quarantine/row?id=gone").status_code == 404
    assert alice.get("/page/quarantine/row").status_code == 400


@pytest.mark.parametrize(("verb", "kind"), [("retry", Retry), ("discard", Discard)])
def test_rows_are_decided_about_one_or_all_that_are_shown(
    alice: Visitor, verb: str, kind: type[Retry | Discard]
) -> None:
    """Afterwards the same rows are asked for, and what came of it is told."""
    secret = alice.secret()
    shown = {"csrf": secret, "shown_endpoint": BILLING, "shown_reason": ""}
    found = alice.post(f"/page/{verb}", {**shown, "endpoint": BILLING, "id": "t 7"})
    assert found.headers["location"] == "/page/quarantine?endpoint=Billing"
    assert "Done:" in text_of(alice.get(found.headers["location"]))
    alice.post(
        f"/page/{verb}", {**shown, "endpoint": BILLING, "reason": "destination-unbound", "id": ""}
    )
    (one, _), (several, _) = alice.panel.told
    assert one == kind(endpoint=BILLING, reason=None, id=TimeoutId("t 7"))
    assert several == kind(endpoint=EndpointName("Billing"), reason="destination-unbound", id=None)
