"""Tests of ``migrator.web.auth``."""

from __future__ import annotations

import pytest

from migrator.web.auth import LIFE_S, MOST, Listener, RateLimiter, RequestFacts, Sessions, refusal
from migrator.web.control import Answer

TOKEN = "correct horse battery"
SOCKET = Listener(is_socket=True)
LOCAL = Listener(is_socket=False, token=TOKEN)
REMOTE = Listener(is_socket=False, token=TOKEN, is_loopback=False)


def status(
    listener: Listener,
    path: str = "/control",
    *,
    method: str = "GET",
    peer: str = "127.0.0.1",
    **given: str,
) -> int:
    """Return the code of the refusal; 200 when there is none."""
    headers = {"host": "127.0.0.1:9464", **given}
    asked = RequestFacts(method=method, path=path, headers=headers, peer=peer)
    found = refusal(asked, listener)
    return 200 if found is None else found.status


def test_whoever_may_open_the_socket_may_do_everything() -> None:
    """Without a token, whatever it asks for."""
    assert status(SOCKET, "/control", method="POST", peer="alice") == 200


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer  {TOKEN} ", 200),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (TOKEN, 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer größer", 401),
        ("", 401),
    ],
)
def test_only_the_token_opens(authorization: str, expected: int) -> None:
    """The whole of it, as a bearer token."""
    assert status(LOCAL, authorization=authorization) == expected
    assert status(LOCAL, method="POST", authorization=authorization) == expected


@pytest.mark.parametrize("path", ["/live", "/ready", "/metrics", "/status"])
def test_looking_needs_no_token_on_this_machine(path: str) -> None:
    """Reading them only; whoever comes from elsewhere needs it."""
    assert status(LOCAL, path) == 200
    assert status(LOCAL, path, method="HEAD", peer="::1") == 200
    assert status(LOCAL, path, method="POST") == 401
    assert status(REMOTE, path, peer="192.0.2.7") == 401
    assert status(REMOTE, path, peer="") == 401
    assert status(REMOTE, path, peer="192.0.2.7", authorization=f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    "name", ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"]
)
def test_whoever_comes_through_a_proxy_is_not_on_this_machine(name: str) -> None:
    """It connects from here, and says that it asks for somebody else; monitoring goes on."""
    header = {name: "127.0.0.1"}
    assert status(LOCAL, "/status", **header) == 401
    assert status(LOCAL, "/status", authorization=f"Bearer {TOKEN}", **header) == 200
    assert status(LOCAL, "/live", **header) == 200


def test_where_others_come_in_only_monitoring_is_open() -> None:
    """Behind a proxy everybody seems to be on this machine; the page wants its login there, too."""
    assert status(REMOTE, "/metrics") == 200
    assert status(REMOTE, "/status") == 401
    assert status(REMOTE, "/status", authorization=f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize("path", ["/control", "/page", "/x", "/live/", "//metrics", "/status/"])
def test_without_a_token_nothing_else_is_served(path: str) -> None:
    """Nor with an empty one."""
    listener = Listener(is_socket=False)
    assert status(listener, path) == 403
    assert status(listener, path, authorization="Bearer ") == 403
    assert status(listener, "/metrics") == status(listener, "/status") == 200


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


def test_names_of_a_remote_address_are_not_known() -> None:
    """So any is taken; the token is needed anyway."""
    good = {"host": "migrator.example", "authorization": f"Bearer {TOKEN}"}
    assert status(REMOTE, peer="192.0.2.7", **good) == 200


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:9464", 200),
        ("https://evil.example", 403),
        ("http://127.0.0.1:80", 403),
        ("null", 403),
    ],
)
def test_a_page_of_another_origin_cannot_command(origin: str, expected: int) -> None:
    """Even with the token; reading it cannot be told from here."""
    good = {"origin": origin, "authorization": f"Bearer {TOKEN}"}
    assert status(LOCAL, "/control", method="POST", **good) == expected


def test_a_listener_keeps_its_token_to_itself() -> None:
    """Whatever is logged of it."""
    assert TOKEN not in repr(LOCAL)


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_who_is_wrong_too_often_has_to_wait() -> None:
    """Until the span is over, and nobody else."""
    clock = Clock()
    tries = RateLimiter(most=3, span_s=30, clock=clock)
    for _ in range(3):
        assert tries.wait_s("192.0.2.1") == 0
        tries.note_wrong("192.0.2.1")
        clock.now_s += 1
    assert tries.wait_s("192.0.2.1") == 27
    assert tries.wait_s("192.0.2.2") == 0
    clock.now_s = 30
    assert tries.wait_s("192.0.2.1") == 0


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("", "", True),
    ],
)
def test_a_network_is_one_address(one: str, other: str, is_same: bool) -> None:
    """Whoever has an IPv6 address has many more of them."""
    tries = RateLimiter(most=1, span_s=30)
    tries.note_wrong(one)
    assert (tries.wait_s(other) > 0) is is_same


def test_memory_is_bounded() -> None:
    """However many come; the latest are remembered."""
    tries = RateLimiter(most=1, span_s=30)
    for number in range(2_000):
        tries.note_wrong(f"10.0.{number // 250}.{number % 250}")
    assert len(tries) == 256
    assert tries.wait_s("10.0.7.249") > 0


def test_a_cookie_finds_its_session() -> None:
    """And no other cookie does."""
    sessions = Sessions()
    alice, bob = sessions.begin("alice"), sessions.begin("bob")
    found = sessions.find(alice)
    assert found is not None
    assert found.name == "alice"
    assert alice != bob
    for wrong in (None, "", alice[:-1], alice + "x", "alice"):
        assert sessions.find(wrong) is None


def test_a_session_ends_by_itself_or_when_told() -> None:
    """Then its cookie is worth nothing."""
    clock = Clock()
    sessions = Sessions(clock=clock)
    cookie, other = sessions.begin(""), sessions.begin("")
    sessions.end(other)
    assert sessions.find(other) is None
    clock.now_s = LIFE_S - 1
    assert sessions.find(cookie) is not None
    clock.now_s = LIFE_S
    assert sessions.find(cookie) is None


def test_there_are_never_more_than_a_few() -> None:
    """The oldest ends; those that are over are forgotten first."""
    clock = Clock()
    sessions = Sessions(clock=clock)
    first, *rest = [sessions.begin("") for _ in range(MOST)]
    last = sessions.begin("")
    assert len(sessions) == MOST
    assert sessions.find(first) is None
    assert all(sessions.find(cookie) for cookie in [*rest, last])
    clock.now_s = LIFE_S
    sessions.begin("")
    assert len(sessions) == 1


def test_only_its_own_forms_are_a_sessions() -> None:
    """The secret is in no log line."""
    sessions = Sessions()
    alice, bob = sessions.find(sessions.begin("")), sessions.find(sessions.begin(""))
    assert alice is not None
    assert bob is not None
    assert alice.owns(alice.csrf)
    for wrong in ("", bob.csrf, alice.csrf[:-1], "größer"):
        assert not alice.owns(wrong)
    assert alice.csrf not in repr(alice)


def test_what_came_of_a_command_is_told_once() -> None:
    """The next page has nothing to tell."""
    sessions = Sessions()
    session = sessions.find(sessions.begin(""))
    assert session is not None
    session.told = Answer(is_done=True, text="paused")
    assert session.take_told() == Answer(is_done=True, text="paused")
    assert session.take_told() is None
