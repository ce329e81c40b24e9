"""Tests of ``migrator.web.page.session``."""

from __future__ import annotations

from migrator.web.control_values import Answer
from migrator.web.page.session import LIFE_S, MOST, Sessions


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


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
