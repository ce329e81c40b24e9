"""Tests of ``migrator.web.auth``."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from migrator.web import auth
from migrator.web.auth import LIFE_S, MOST, MOST_WRONG, Listener, Sessions, WrongTokens, refusal

TOKEN = "correct horse battery"
SOCKET = Listener(is_socket=True)
LOCAL = Listener(is_socket=False, token=TOKEN)
REMOTE = Listener(is_socket=False, token=TOKEN, is_loopback=False)
BARE = Listener(is_socket=False)
SHOWN = Listener(is_socket=False, token=TOKEN, open_to_local=True)
BEARER = f"Bearer {TOKEN}"
HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"


def status(
    listener: Listener,
    path: str = "/control",
    *,
    method: str = "GET",
    peer: str = HERE,
    **given: str,
) -> int:
    """Return the code of the refusal; 200 when there is none."""
    headers = {"host": "127.0.0.1:9464", **given}
    asked = Request(
        {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.encode(), text.encode("latin-1")) for name, text in headers.items()],
            "client": (peer, 4711) if peer else None,
        }
    )
    found = refusal(asked, listener)
    return 200 if found is None else found.status_code


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (BEARER, 200),
        (f"bearer  {TOKEN} ", 200),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (TOKEN, 401),
        (f"{BEARER}x", 401),
        (BEARER[:-1], 401),
        ("Bearer größer", 401),
        ("", 401),
    ],
)
def test_only_the_token_opens(authorization: str, expected: int) -> None:
    """The whole of it, as a bearer token; whoever may open the socket file needs none."""
    for method in ("GET", "POST"):
        assert status(LOCAL, method=method, authorization=authorization) == expected
    assert status(SOCKET, method="POST", peer="alice", authorization=authorization) == 200


@pytest.mark.parametrize("path", ["/live", "/ready", "/metrics", "/status"])
def test_looking_needs_no_token_on_this_machine(path: str) -> None:
    """Reading them only; /status wants a token that is set, unless it is said to be open."""
    assert status(SHOWN, path) == status(BARE, path) == 200
    assert status(LOCAL, path) == (401 if path == "/status" else 200)
    assert status(SHOWN, path, method="HEAD", peer="::1") == 200
    assert status(SHOWN, path, method="POST") == 401
    assert status(REMOTE, path, peer=ELSEWHERE) == status(REMOTE, path, peer="") == 401
    assert status(REMOTE, path, peer=ELSEWHERE, authorization=BEARER) == 200


@pytest.mark.parametrize(
    "name", ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"]
)
def test_whoever_comes_through_a_proxy_is_not_on_this_machine(name: str) -> None:
    """It connects from here, and says that it asks for somebody else; monitoring goes on."""
    header = {name: HERE}
    assert status(SHOWN, "/status", **header) == 401
    assert status(SHOWN, "/status", authorization=BEARER, **header) == 200
    assert status(SHOWN, "/live", **header) == 200


def test_where_others_come_in_only_monitoring_is_open() -> None:
    """Behind a proxy everybody seems to be on this machine; names that lead here are not known."""
    assert (status(REMOTE, "/metrics"), status(REMOTE, "/status")) == (200, 401)
    named = {"host": "migrator.example", "authorization": BEARER}
    assert status(REMOTE, "/status", peer=ELSEWHERE, **named) == 200


@pytest.mark.parametrize("path", ["/control", "/page", "/x", "/live/", "//metrics", "/status/"])
def test_without_a_token_nothing_else_is_served(path: str) -> None:
    """Nor with an empty one."""
    assert status(BARE, path) == status(BARE, path, authorization="Bearer ") == 403


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST:9464", 200),
        ("[::1]:9464", 200),
        ("evil.example:9464", 403),
        ("localhost.evil.example", 403),
        ("user@evil.example", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str, expected: int) -> None:
    """A page of evil.example cannot read the metrics of this machine."""
    assert status(LOCAL, "/metrics", host=host) == expected


@pytest.mark.parametrize("host", ["127.0.0.1/page/", "127.0.0.1/page/?", "127.0.0.1/live#"])
def test_a_path_in_the_name_is_no_path(host: str) -> None:
    """Older versions of Starlette make a request's URL of it: it would pass for the page's."""
    for listener in (LOCAL, REMOTE):
        assert status(listener, "/control", method="POST", host=host) == 401


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:9464", 200),
        ("https://evil.example", 403),
        ("http://127.0.0.1:80", 403),
        ("http://[::1", 403),
        ("null", 403),
    ],
)
def test_a_page_of_another_origin_cannot_command(origin: str, expected: int) -> None:
    """Even with the token; reading it cannot be told from here."""
    good = {"origin": origin, "authorization": BEARER}
    assert status(LOCAL, "/control", method="POST", **good) == expected


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_wrong_tokens_are_answered_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only a few wait for that; those beyond are told so at once."""
    slept: list[float] = []
    under_way = 0

    async def sleep(seconds: float) -> None:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        slept.append(seconds)
        await waiting.wait()
        under_way -= 1

    async def all_at_once() -> list[bool]:
        wrong = WrongTokens()
        tries = [asyncio.ensure_future(wrong.wait()) for _ in range(MOST_WRONG + 3)]
        await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        assert [each.done() for each in tries] == [False] * MOST_WRONG + [True] * 3
        waiting.set()
        return [await each for each in (*tries, asyncio.ensure_future(wrong.wait()))]

    waiting = asyncio.Event()
    monkeypatch.setattr("asyncio.sleep", sleep)
    assert asyncio.run(all_at_once()) == [True] * MOST_WRONG + [False] * 3 + [True]
    assert slept == [auth.WRONG_S] * (MOST_WRONG + 1)


def test_memory_is_bounded() -> None:
    """However many log in; sessions that are over are forgotten first."""
    clock = Clock()
    sessions = Sessions(clock=clock)
    first, *rest = [sessions.begin("") for _ in range(MOST + 1)]
    assert len(sessions) == MOST
    assert sessions.find(first) is None
    assert all(sessions.find(cookie) for cookie in rest)
    clock.now_s = LIFE_S
    sessions.begin("")
    assert len(sessions) == 1


def test_a_cookie_finds_its_session_until_it_ends() -> None:
    """By itself, or when told; no other cookie does."""
    clock = Clock()
    sessions = Sessions(clock=clock)
    alice, bob = sessions.begin("alice"), sessions.begin("bob")
    for wrong in (None, "", alice[:-1], alice + "x", "alice"):
        assert sessions.find(wrong) is None
    sessions.end(bob)
    assert sessions.find(bob) is None
    clock.now_s = LIFE_S - 1
    found = sessions.find(alice)
    assert found is not None
    assert found.name == "alice"
    clock.now_s = LIFE_S
    assert sessions.find(alice) is None
