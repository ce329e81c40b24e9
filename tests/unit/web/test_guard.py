"""Tests of ``migrator.web.guard``."""

from __future__ import annotations

import pytest

from migrator.web.guard import Asked, Door, refusal

TOKEN = "correct horse battery"
SOCKET = Door(is_socket=True)
LOCAL = Door(is_socket=False, token=TOKEN)
REMOTE = Door(is_socket=False, token=TOKEN, is_loopback=False)


def status(
    door: Door,
    path: str = "/control",
    *,
    method: str = "GET",
    peer: str = "127.0.0.1",
    **given: str,
) -> int:
    """Return the code of the refusal; 200 when there is none."""
    headers = {"host": "127.0.0.1:9464", **given}
    asked = Asked(method=method, path=path, headers=headers, peer=peer)
    found = refusal(asked, door)
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
    door = Door(is_socket=False)
    assert status(door, path) == 403
    assert status(door, path, authorization="Bearer ") == 403
    assert status(door, "/metrics") == status(door, "/status") == 200


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


def test_a_door_keeps_its_token_to_itself() -> None:
    """Whatever is logged of it."""
    assert TOKEN not in repr(LOCAL)
