"""Tests of the sections of the settings: ``servers``, ``work`` and ``process``."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from migrator import config
from migrator.config import Hooks, Telemetry, Web, load
from migrator.config.process import AUTO
from migrator.config.secrets import mask
from migrator.config.servers import RavenDb
from migrator.config.work import Throttle
from migrator.errors import ConfigError
from migrator.service.hooks import HookEvent

AZURE = '[store]\nkind = "azure"\nurl = "AccountName=a;AccountKey=c2VjcmV0"\n'


def settings_of(tmp_path: Path, text: str) -> config.Settings:
    """Return the settings that *text* says."""
    file = tmp_path / "migrator.toml"
    file.write_text(text)
    return config.load(file=file, environ={}).settings


def test_a_ledger_of_its_own_is_named(tmp_path: Path) -> None:
    """Defaults are the vendor's."""
    found = settings_of(tmp_path, AZURE + '[ledger]\nurl = "sqlite:///x.db"\n')
    assert found.ledger.url is not None
    assert found.store.azure.table == "TimeoutDataTableName"
    assert found.store.azure.partition_key_scope == "yyyyMMddHH"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[store]\nurl = "a"\n[ledger]\nurl = "b"\n', "ledger.url must be empty"),
        (AZURE + '[handover]\nnear_due = "dispatch"\n', "need a SQL store"),
        (AZURE + '[[endpoints]]\nname = "A"\nmode = "forward"\n', "set for: A"),
        (AZURE + '[store.azure]\ntable = "1x"\n', "a letter first"),
        (AZURE + '[store.azure]\ncontainer = "Upper"\n', "lower case"),
        (AZURE + '[store.azure]\npartition_key_scope = "yyMM"\n', "such as yyyyMMddHH"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """At once, and with the reason."""
    with pytest.raises(ConfigError, match=complaint):
        settings_of(tmp_path, text)


def test_the_same_ledger_twice_is_harmless(tmp_path: Path) -> None:
    """A SQL store's own database is where its ledger is."""
    found = settings_of(tmp_path, '[store]\nurl = "a"\n[ledger]\nurl = "a"\n')
    assert found.ledger.url == found.store.url
    assert not found.store.kind.has_own_ledger


@pytest.mark.parametrize(
    "text",
    ["AccountKey=c2Vj/+x==", "SharedAccessSignature=sv=1&sig=c2VjcmV0", "?sv=1&sig=c2VjcmV0"],
)
def test_keys_and_signatures_are_masked(text: str) -> None:
    """Wherever a connection string may turn up."""
    shown = mask(f"AccountName=a;{text};EndpointSuffix=core")
    assert "c2Vj" not in shown
    assert "AccountName=a" in shown


def test_nothing_needs_to_be_set_for_the_usual_collections() -> None:
    """Both conventions of the past; nobody owns what names no owner."""
    given = RavenDb()
    assert given.collections == ("TimeoutDatas", "TimeoutData")
    assert (given.prefixes, given.unowned, given.version) == ((), None, "auto")


def test_an_empty_owner_is_none() -> None:
    """An environment variable cannot be taken away, only emptied."""
    assert RavenDb.model_validate({"unowned": ""}).unowned is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cert_file": "c.pem"}, "must have both cert_file and key_file, or neither"),
        ({"collections": []}, "must name at least one"),
        ({"prefixes": [""]}, "at least 1 character"),
        ({"version": "5"}, "'auto', '3.5' or '4'"),
        ({"request_timeout": "0s"}, "must be longer than 0s"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, object], said: str) -> None:
    """An empty prefix would list the whole database in another order."""
    with pytest.raises(ValidationError, match=said):
        RavenDb.model_validate(given)


def test_everything_is_off_unless_it_is_wanted() -> None:
    """Empty and 0 both mean off."""
    given = Throttle()
    off = Throttle(
        max_level_depth=0,
        max_database_latency="",  # type: ignore[arg-type]  # as in a file
        touch_file="",  # type: ignore[arg-type]  # as in a file
        veto_url="",
        windows=(),
    )
    assert given == off
    assert given.open_windows == []


def test_a_file_says_what_holds(tmp_path: Path) -> None:
    """With units, and several windows."""
    file = tmp_path / "migrator.toml"
    file.write_text(
        '[throttle]\nwindows = ["22:00-06:00", "Sat-Sun 00:00-24:00"]\n'
        'time_zone = "Europe/Vienna"\nmax_database_latency = "500ms"\nveto_url = "http://a/b"\n'
    )
    given = load(file=file, environ={}).settings.throttle
    assert [window.text for window in given.open_windows] == ["22:00-06:00", "Sat-Sun 00:00-24:00"]
    assert given.zone == ZoneInfo("Europe/Vienna")
    assert given.max_database_latency is not None
    assert given.max_database_latency.total_seconds() == 0.5
    environ = {"MIGRATOR_THROTTLE__WINDOWS": '["01:00-02:00"]'}
    assert load(file=file, environ=environ).settings.throttle.windows == ("01:00-02:00",)


def test_utc_needs_no_data_about_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a small container may not have."""

    def unknown(key: str) -> ZoneInfo:
        raise LookupError(key)

    monkeypatch.setattr("migrator.config.values.ZoneInfo", unknown)
    assert Throttle().zone is UTC
    with pytest.raises(ValidationError, match="time zone"):
        Throttle(time_zone="Europe/Vienna")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"windows": ["10pm"]}, "22:00-06:00"),
        ({"time_zone": "Mars/Base"}, "time zone"),
        ({"time_zone": "../../etc/passwd"}, "time zone"),
        ({"touch_file": "here"}, "absolute path"),
        ({"veto_url": "ftp://a"}, "http://"),
        ({"veto_url": "http://me:secret@a/"}, "no password"),
        ({"every": "20s"}, "twice as long"),
        ({"max_database_latency": "0s"}, "longer than"),
        ({"max_level_depth": -1}, "greater"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], why: str) -> None:
    """Each with what would do."""
    with pytest.raises(ValidationError, match=why):
        Throttle(**given)


TOKEN = "correct horse battery"


def loaded(tmp_path: Path, **values: str) -> Web:
    """Return the section, with *values* from the environment."""
    file = tmp_path / "migrator.toml"
    file.write_text("")
    environ = {f"MIGRATOR_WEB__{key.upper()}": value for key, value in values.items()}
    return config.load(file=file, environ=environ).settings.web


def test_no_port_is_listened_on_unless_told(tmp_path: Path) -> None:
    """A socket is in the usual place; an empty text is nothing."""
    web = loaded(tmp_path)
    assert (web.socket, web.address, web.token) == ("auto", None, None)
    web = loaded(tmp_path, socket="", listen="")
    assert (web.socket, web.address) == (None, None)
    assert loaded(tmp_path, socket="auto").socket == AUTO


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
        ("127.8.8.8:80", ("127.8.8.8", 80)),
    ],
)
def test_an_address_of_this_machine_is_enough(
    tmp_path: Path, listen: str, address: tuple[str, int]
) -> None:
    """Without a token, which only control needs."""
    assert loaded(tmp_path, listen=listen).address == address


@pytest.mark.parametrize(
    "listen",
    [
        *("127.0.0.1", "9464", ":9464", "::1:9464", "127.0.0.1:port", "127.0.0.1:70000"),
        *("http://127.0.0.1:80", "a@127.0.0.1:80", "127.0.0.1:80/metrics", "[::1:80"),
    ],
)
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    """With an example of one."""
    with pytest.raises(ConfigError, match=r"such as 127\.0\.0\.1:9464"):
        loaded(tmp_path, listen=listen)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "migrator.example"])  # noqa: S104 - that is the point
def test_others_reach_it_on_purpose_only(tmp_path: Path, host: str) -> None:
    """It takes a word and a token."""
    listen = f"{host}:9464"
    with pytest.raises(ConfigError, match="unless allow_remote is true"):
        loaded(tmp_path, listen=listen, token=TOKEN)
    with pytest.raises(ConfigError, match="without a token"):
        loaded(tmp_path, listen=listen, allow_remote="true")
    assert loaded(tmp_path, listen=listen, allow_remote="true", token=TOKEN).address is not None


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "größer, und sechzehn", "x" * 16 + "\t"])
def test_a_poor_token_is_refused_and_not_shown(tmp_path: Path, token: str) -> None:
    """Sixteen characters at least."""
    with pytest.raises(ConfigError, match="at least 16 characters") as caught:
        loaded(tmp_path, token=token)
    assert not token or token not in str(caught.value)


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    """And is shown nowhere."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    web = loaded(tmp_path, token_file=str(tmp_path / "token"))
    assert web.token is not None
    assert web.token.get_secret_value() == TOKEN
    found = config.load(file=tmp_path / "migrator.toml", environ={"MIGRATOR_WEB__TOKEN": TOKEN})
    (row,) = [row for row in config.describe(found) if row.key == "web.token"]
    assert row.value == "***"


def test_a_socket_is_the_same_file_for_everybody(tmp_path: Path) -> None:
    """Wherever they are started."""
    with pytest.raises(ConfigError, match="must be an absolute path"):
        loaded(tmp_path, socket="control.sock")
    assert loaded(tmp_path, socket="/run/migrator/control.sock").socket is not None


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:4318", "https://[::1]:4318/otlp", ""])
def test_an_address_is_taken_as_it_is(endpoint: str) -> None:
    """Empty leaves it to the environment."""
    assert Telemetry.model_validate({"endpoint": endpoint}).endpoint == (endpoint or None)


@pytest.mark.parametrize(
    "endpoint",
    ["127.0.0.1:4318", "ftp://host", "http://", "http://[::1", "http://u:p@host", "http://h?k=v"],
)
def test_what_is_no_collector_is_refused(endpoint: str) -> None:
    """Nor may it hold a secret: settings are shown."""
    with pytest.raises(ValidationError, match="without a user"):
        Telemetry(endpoint=endpoint)


def test_every_event_may_have_a_program() -> None:
    """And nothing else may."""
    programs = {str(event): f"/bin/{event}" for event in HookEvent}
    assert {*Hooks.model_validate(programs).programs} == {*programs}
    assert {*Hooks.model_fields} == {*programs, "timeout"}
