"""Tests of ``migrator.cli.opening``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.app.preflight import check_context
from migrator.cli.opening import endpoint_names, named_endpoints, opened, surveyed
from migrator.config import load
from migrator.errors import ConfigError
from tests.unit.cli.conftest import Program


@pytest.mark.parametrize(
    ("named", "all_endpoints", "expected"),
    [
        (["A"], False, ("A",)),
        (None, True, ()),
        (None, False, ("Sales", "Billing")),
    ],
)
def test_options_win_over_configured_endpoints(
    program: Program, named: list[str] | None, all_endpoints: bool, expected: tuple[str, ...]
) -> None:
    """Which endpoints are meant."""
    file = program.folder / "migrator.toml"
    file.write_text('[[endpoints]]\nname = "Sales"\n[[endpoints]]\nname = "Billing"\n')
    with opened(load(file=file, environ={})) as app:
        assert tuple(endpoint_names(app, named, all_endpoints=all_endpoints)) == expected
        assert tuple(named_endpoints(app, named, all_endpoints=all_endpoints)) == expected


def test_contradictions_and_silence_are_refused(program: Program) -> None:
    """A verb that changes something wants to be told where."""
    with opened(load(environ={})) as app:
        with pytest.raises(ConfigError, match="exclude each other"):
            endpoint_names(app, ["A"], all_endpoints=True)
        with pytest.raises(ConfigError, match="which endpoints"):
            named_endpoints(app, None, all_endpoints=False)
        assert endpoint_names(app, None, all_endpoints=False) == ()


def test_progress_is_shown_on_a_terminal_only(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts are the same."""
    program.seeded(count=2001)  # more than one chunk
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with opened(load(environ={"MIGRATOR_STORE__URL": program.url})) as app:
        (found,) = surveyed(app, app.store.endpoints())
    assert found.stored == 2001
    assert program.capsys.readouterr().out == ""


def test_checks_ask_for_our_queues_of_all_lanes(program: Program) -> None:
    """Once there is a ledger, whose id names them."""
    environ = {"MIGRATOR_STORE__URL": program.url, "MIGRATOR_HANDOVER__LANES": "2"}
    with opened(load(environ=environ)) as app:
        program("db", "upgrade")
        context = check_context(app, (), None)
        assert len(context.choices.own_queues) == 4
        assert all(name.startswith("migrator.") for name in context.choices.own_queues)


def test_without_a_ledger_we_have_no_queues(program: Program) -> None:
    """The ledger's own check says what is wrong."""
    with opened(load(environ={"MIGRATOR_STORE__URL": program.url})) as app:
        assert check_context(app, (), None).choices.own_queues == ()


def test_settings_become_choices(program: Program, tmp_path: Path) -> None:
    """Each check gets plain values."""
    environ = {
        "MIGRATOR_STORE__URL": program.url,
        "MIGRATOR_BROKER__ALL_ENDPOINTS_SUPPORT_DELAYED_DELIVERY": "true",
        "MIGRATOR_BROKER__DELAYS": "v1",
        "MIGRATOR_HANDOVER__CUTOFF": "0s",
        "MIGRATOR_HANDOVER__ACCEPT_SUFFIX_COLLISIONS": "true",
    }
    with opened(load(environ=environ)) as app:
        found = check_context(app, ("Sales",), None)
    assert replace(found.choices, own_queues=()).may_bind is False
    assert (str(found.version), found.accepts_suffix_collisions) == ("v1", True)
    assert found.wall_clock().tzinfo is not None


def test_endpoints_we_dispatch_for_have_satellites(program: Program) -> None:
    """With the names that the settings give or imply; only those that were chosen."""
    file = program.folder / "migrator.toml"
    file.write_text(
        '[handover]\nnear_due = "dispatch"\n[dispatch]\nretry_delays = ["10s", "1m"]\n'
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\nqueue = "In"\nerror_queue = "bad"\n'
        '[[endpoints]]\nname = "Billing"\nmode = "forward"\n'
        '[[endpoints]]\nname = "Stock"\n'
    )
    with opened(load(file=file, environ={"MIGRATOR_STORE__URL": program.url})) as app:
        found = check_context(app, (), None).choices
        only = check_context(app, ("Billing", "Stock"), None).choices.satellites
    assert [(s.endpoint, s.queue, s.error_queue) for s in found.satellites] == [
        ("Sales", "In", "bad"),
        ("Billing", "Billing", "error"),
    ]
    assert [name.rpartition(".")[2] for name in found.satellites[0].retry_queues] == ["10", "60"]
    assert all(name.startswith("migrator.retry.In") for name in found.satellites[0].retry_queues)
    assert [s.endpoint for s in only] == ["Billing"]
    assert dict(found.modes) == {"Sales": "dispatch", "Billing": "forward", "Stock": "migrate"}
    assert (found.queues["Sales"], found.sends_near_due) == ("In", True)
